// strategy.h - the interface between routing rules and the engine that encodes, merges and sends
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// The treatment of a run of elements on one rank, in the primitives of HiPress (SOSP 2021): recv, merge, encode, send,
// decode. Links are numbers of Topology::neighbours().
struct Step {
  bool expected = false;  // the run is valid on this rank; if not, all other fields are meaningless
  bool merge = false;     // local elements are added to the run, which is one of Phase::kReduce
  bool in_turn = false;   // the run is one of several contributions to a block that this rank owns: see OrderedReducer
  bool store = false;     // the outcome is final: it is stored in the tensor
  bool send = false;      // the outcome is sent to a neighbour
  uint8_t link = 0;       // by this link
  Phase phase = Phase::kReduce;  // in this phase
  bool to_all = false;           // the outcome is a result, and is sent to all other ranks
  // For Phase::kGather:
  bool begins = false;  // the path of this result begins here
  uint16_t sink = 0;    // rank (or place in the ring) where that path ends
};

using LinkSet = std::bitset<kMaxWorld>;

// The properties of a started operation that routing depends on.
struct RouteKey {
  OpKind kind = OpKind::kAllReduce;
  unsigned root = 0;      // for kinds with has_root()
  unsigned rotation = 0;  // see Strategy::rotates()
  unsigned stage = 0;
};

// The division of the tensor into blocks by a stage, or of the part of the tensor that the stage works on.
struct Division {
  unsigned blocks = 1;
  // The part is one of `shares` shares of the tensor. 1: the whole tensor.
  unsigned shares = 1;
  unsigned share = 0;
};

// A routing rule: pure functions of the rank, the operation, its stage, the block, the phase and the source. The engine
// calls them for each run, so they are cheap. One instance serves all operations of a rank.
//
// An operation has one or more stages. Each stage is an exchange of its own, of the whole tensor or a part of it. A
// rank begins a stage when the previous one has ended on this rank.
class Strategy {
 public:
  virtual ~Strategy() = default;

  [[nodiscard]] virtual unsigned stages(OpKind) const noexcept { return 1; }
  [[nodiscard]] virtual Division division(const RouteKey& route) const noexcept = 0;

  // Returns what this rank does with its own elements of a block without waiting for others.
  [[nodiscard]] virtual Step start(const RouteKey& route, unsigned block) const noexcept = 0;

  // Returns what this rank does with a run that arrives by `link`. If the step is `expected`, each element of the block
  // arrives exactly once by each such link.
  [[nodiscard]] virtual Step arrival(const RouteKey& route, Phase phase, unsigned block,
                                     size_t link) const noexcept = 0;

  // Returns the links by which runs of this stage arrive. The ranks there must learn when it starts here.
  [[nodiscard]] virtual LinkSet sources(const RouteKey& route) const noexcept = 0;

  // Returns links to ranks that wait for data from this rank although other ranks may have finished the operation. If
  // the operation fails here, this rank must send them aborts directly, because finished ranks do not forward an abort
  // in the ring of all ranks. Each of the ranks tells this rank when it starts the operation.
  [[nodiscard]] virtual LinkSet dependents(const RouteKey&) const noexcept { return {}; }

  // ---- For strategies whose blocks have owners, which add contributions in turns: OrderedReducer.
  [[nodiscard]] virtual bool has_owners() const noexcept { return false; }
  // Returns whether the owners of blocks change from operation to operation if there are fewer granules than ranks.
  // Then RouteKey::rotation is the operation's number modulo the number of ranks.
  [[nodiscard]] virtual bool rotates() const noexcept { return false; }
  [[nodiscard]] virtual unsigned owner(const RouteKey&, unsigned block) const noexcept { return block; }
  // Returns the rank whose elements of a block are added first. The others follow in the order of the ring.
  [[nodiscard]] virtual unsigned first_of(const RouteKey&, unsigned block) const noexcept { return block; }
  // Returns whether results may be sent before the last contribution has arrived.
  [[nodiscard]] virtual bool streams() const noexcept { return true; }

  // Returns how many ranks send to one rank at a time.
  [[nodiscard]] virtual unsigned senders() const noexcept { return 1; }
};

}  // namespace gradlane
