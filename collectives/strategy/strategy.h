// strategy.h - the seam between what an operation routes where, and the engine that encodes, merges and sends
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// What becomes of a run of elements at one rank, in the primitives of HiPress (SOSP 2021): recv, merge, encode, send,
// decode. Links are numbers of Topology::neighbours().
struct Step {
  bool expected = false;         // such a run exists here; nothing else counts if not
  bool merge = false;            // the local elements are added to it, a run of Phase::kReduce
  bool in_turn = false;          // it is one of several contributions to a block of this rank's: see Turns
  bool store = false;            // the outcome is final: it goes into the tensor
  bool send = false;             // the outcome goes to a neighbour,
  uint8_t link = 0;              //   this one,
  Phase phase = Phase::kReduce;  // as this
  bool to_all = false;           // the outcome, a result, goes to all other ranks
  // For Phase::kGather:
  bool begins = false;  // the way of this result begins here
  uint16_t sink = 0;    // the rank where it ends
};

using LinkSet = std::bitset<kMaxWorld>;

// Of an operation that has started here, what routing depends on.
struct Task {
  OpKind kind = OpKind::kAllReduce;
  unsigned root = 0;      // where the kind has one
  unsigned rotation = 0;  // see Strategy::rotates()
  unsigned stage = 0;
};

// How the part of a tensor that a stage is about is divided.
struct Division {
  unsigned blocks = 1;
  // The part: this share of so many that the tensor is spread over. 1: all of it.
  unsigned shares = 1;
  unsigned share = 0;
};

// A routing rule: pure functions of the rank, the operation, its stage, the block, the phase and the source. The engine
// asks for each run, so they are cheap. One instance serves all operations of a rank.
//
// An operation has one stage or more. Each is an exchange of its own, of the whole tensor or a part of it, and a rank
// begins the next one when the last one has ended for it.
class Strategy {
 public:
  virtual ~Strategy() = default;

  [[nodiscard]] virtual unsigned stages(OpKind) const noexcept { return 1; }
  [[nodiscard]] virtual Division division(const Task& task) const noexcept = 0;

  // What this rank does with its own elements of a block without waiting for others.
  [[nodiscard]] virtual Step start(const Task& task, unsigned block) const noexcept = 0;

  // What it does with a run that arrives by `link`. Each element of a block for which this is `expected` arrives
  // exactly once by each link.
  [[nodiscard]] virtual Step arrival(const Task& task, Phase phase, unsigned block, size_t link) const noexcept = 0;

  // By these links come runs of this stage: they must hear when it starts here.
  [[nodiscard]] virtual LinkSet sources(const Task& task) const noexcept = 0;

  // Who waits for what this rank sends, where others may be through with the operation before: they must hear if it
  // fails here, as the news need not come round the ring of all ranks. They all tell this rank when they start.
  [[nodiscard]] virtual LinkSet dependents(const Task&) const noexcept { return {}; }

  // ---- Where blocks have owners, who add in turns: Turns.
  [[nodiscard]] virtual bool has_owners() const noexcept { return false; }
  // Where there are fewer granules than ranks, the owners of blocks change from operation to operation: Task::rotation
  // is the operation's number then.
  [[nodiscard]] virtual bool rotates() const noexcept { return false; }
  [[nodiscard]] virtual unsigned owner(const Task&, unsigned block) const noexcept { return block; }
  // The rank whose elements of a block come first; the others follow in the order of the ring.
  [[nodiscard]] virtual unsigned first_of(const Task&, unsigned block) const noexcept { return block; }
  // Results go before the last contribution has come.
  [[nodiscard]] virtual bool streams() const noexcept { return true; }

  // How many send to one rank at a time.
  [[nodiscard]] virtual unsigned senders() const noexcept { return 1; }
};

}  // namespace gradlane
