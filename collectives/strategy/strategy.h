// strategy.h - the seam between what an operation routes where, and the engine that encodes, merges and sends
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// What becomes of a run of elements at one rank, in the primitives of HiPress (SOSP 2021): recv, merge, encode, send,
// decode.
struct Step {
  bool expected = false;         // such a run exists here; nothing else counts if not
  bool merge = false;            // the local elements are added to it, a run of Phase::kReduce
  bool store = false;            // the outcome is final: it goes into the tensor
  bool send = false;             // the outcome goes to a neighbour,
  uint8_t link = 0;              //   this one (an index into Strategy::neighbours()),
  Phase phase = Phase::kReduce;  // as this
  // For Phase::kGather:
  bool begins = false;  // the way of this result begins here
  uint16_t sink = 0;    // the rank where it ends
};

// A routing rule: pure functions of the rank, the operation and the block. The engine asks for each run, so they are
// cheap. One instance serves all operations of a node.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Ranks that this one exchanges packets with.
  [[nodiscard]] virtual std::span<const unsigned> neighbours() const noexcept = 0;

  // Number of blocks that the tensor of an operation is divided into.
  [[nodiscard]] virtual unsigned blocks(const Operation& operation) const noexcept = 0;

  // What this rank does with its own elements of a block without waiting for others.
  [[nodiscard]] virtual Step start(const Operation& operation, unsigned block) const noexcept = 0;

  // What it does with a run that arrives. Each element of a block for which this is `expected` arrives exactly once.
  [[nodiscard]] virtual Step arrival(const Operation& operation, Phase phase, unsigned block) const noexcept = 0;

  // Bit i: runs of an operation come from neighbour i, which must hear when the operation starts here. They all do
  // where the operation has anything to send.
  [[nodiscard]] virtual unsigned sources() const noexcept = 0;

  // Where the news that an operation has failed goes next, if it comes from (or starts at) `origin`.
  [[nodiscard]] virtual Step failure(unsigned origin) const noexcept = 0;
};

}  // namespace gradlane
