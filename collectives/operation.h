// operation.h - what a caller asks of the exchange, and how it ended
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "collectives/failure.h"
#include "collectives/op_kind.h"
#include "collectives/strategy/strategy_id.h"
#include "compress/codec.h"
#include "compress/loss.h"

namespace gradlane {

// One collective, in place but for all-to-all. All ranks submit the same operations in the same order. Whatever goes
// through a codec ends as decode(encode()) of something, the same bytes on every rank.
//
// all-reduce      data: count elements; ends as the sum over the ranks
// reduce-scatter  data: world * count elements; block `rank` ends as the sum of the ranks' blocks `rank`, the content
//                 of the other blocks is undefined then
// all-gather      data: world * count elements, of which block `rank` is this rank's; ends as all ranks' blocks
// broadcast       data: count elements; ends as those of rank `root`
// barrier         no data; ends when all ranks have submitted it
// reduce          data: count elements; ends as the sum on rank `root`, on all others as it was
// gather          data: world * count elements, of which block `rank` is this rank's; ends on rank `root` as all ranks'
//                 blocks, on all others as it was
// scatter         data: world * count elements on rank `root`; block `rank` ends as that one's block `rank`, the others
//                 stay as they were
// all-to-all      data and out: world * count elements each; block i of `out` ends as rank i's block `rank` of `data`,
//                 which stays as it was
//
// A reduce is rounded as an all-reduce is, and added in the order root+1, root+2, ..., root. What gather and scatter
// deliver travels as it is, and so does an all-to-all's if it names no codec; if it does, all blocks but a rank's own
// end as decode(encode()) of them.
//
// Sums: fp32 as the codec adds, other floating types in their own precision (fp16 and bf16 rounded in every hop),
// integers modulo 2^n, bytes modulo 256. Block b of an all-reduce is added in the order b+1, b+2, ..., b (mod world).
struct Operation {
  OpKind kind = OpKind::kAllReduce;
  ElementType type = ElementType::kFloat32;
  Reduction reduction = Reduction::kSum;
  unsigned root = 0;  // where the kind has one: has_root()
  // Must be the same on all ranks, or the operation fails with kMismatch: a step and bucket number, say, so that ranks
  // that lost count of each other after a failure never add what does not belong together.
  uint64_t tag = 0;
  size_t count = 0;  // elements
  // Stays valid, and is touched by nobody else, until the completion. Any alignment will do.
  void* data = nullptr;
  // all-to-all: where blocks come to; none of it is in `data`. Else null.
  void* out = nullptr;
  // Error feedback (codecs that have it; all-reduce, reduce-scatter and reduce): as many floats as `data`, added to it,
  // and left as the rounding error of this rank's contribution. An operation that fails leaves zeros, and its
  // completion says so; where it still waited for the ring, looked or agreed, and was not cancelled, all as it was.
  // Codecs with two states() have another such array behind it.
  float* residual = nullptr;
  // Floats from the start of one state array to that of the next one; 0: as many as `data` has.
  size_t state_pitch = 0;
  // For fp32; by default the one the exchange is configured with, for an all-to-all raw. One that selects() is for
  // sums: what is not summed travels as it is instead.
  std::optional<Codec> codec;
  // By default the first of the configuration's; where that one cannot do such an operation, the ring; and where that
  // cannot either, the first of the configuration's that can.
  std::optional<StrategyId> strategy{};
  // Of an aggregator, for fp32: the codec of the results on their way back; by default raw, as weights would go.
  std::optional<Codec> back_codec{};
  // From its submission to its failure; 0: start_timeout, then operation_timeout. Need not be alike on all ranks: the
  // first to run out of time fails it for all.
  Nanos timeout = 0;

  // For traces: when the first and the last trainer of this rank handed it over; 0: not told.
  Nanos asked = 0;
  Nanos gathered = 0;
  std::optional<uint16_t> last_rank{};  // the trainer that submitted it last; none: the rank has one trainer

  // ---- A tensor divided among several exchanges; 0 where this is all of it.
  // Elements of the whole: what `count` is of it must follow from that alone, in the same way on all ranks, which
  // compare this instead.
  size_t whole = 0;
  // Elements of the whole before the first one of `data`. Codecs that look at a tensor look at the whole, on each of
  // these exchanges; random numbers follow an element's place in it. Where each rank has a block, both are about one
  // block, and the place is counted over all of them with the pitch below.
  size_t offset = 0;
  // How many of these exchanges still have to look at the whole; it begins with all of them. None changes any of it, or
  // of its states, before, whether it fails or not. Null: nobody else looks at it.
  std::atomic<uint32_t>* lookers = nullptr;
  // Where each rank has a block, has_shares(): elements from the start of one rank's block to that of the next, at
  // least `count`.
  size_t pitch = 0;
};

// Codecs that look at a tensor look at so many elements at a time, from the start of each rank's block on: sums over it
// are made of these.
inline constexpr size_t kLookSlice = 32768;

struct Completion {
  uint64_t id = 0;                // what submit() gave
  Failure failure;                // none: success
  bool residual_cleared = false;  // it is all zeros now; else the operation succeeded, never began, or has none
  Loss loss;                      // of a sample of this rank's contribution: sample_loss()
  uint64_t sent_bytes = 0;  // of its elements that this rank has sent, in runs; without packets' own headers, what
                            // was sent again, and control
};

}  // namespace gradlane
