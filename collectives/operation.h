// operation.h - what a caller asks of the exchange, and how it ended
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/fixed_text.h"
#include "base/time.h"
#include "collectives/strategy/strategy_id.h"
#include "compress/codec.h"
#include "compress/loss.h"

namespace gradlane {

enum class OpKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  // Of links between all: StrategyId::Kind::kDirect.
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
};
inline constexpr OpKind kLastKind = OpKind::kAllToAll;

enum class ElementType : uint8_t { kFloat32, kFloat64, kFloat16, kBfloat16, kInt32, kInt64, kBytes };

// How elements of different ranks become one. Averages are sums divided by the number of ranks (floating types only).
// Minima and maxima are exact, of all types, whatever the codec: elements travel as they are. Where one is NaN, so is
// the result (IEEE 754-2019, minimum and maximum), and -0 is less than +0; bytes are unsigned.
enum class Reduction : uint8_t { kSum, kAverage, kMin, kMax };

[[nodiscard]] constexpr bool is_floating(ElementType type) noexcept { return type < ElementType::kInt32; }
// Its result is a sum over the ranks, or what else a Reduction makes of their elements.
[[nodiscard]] constexpr bool reduces(OpKind kind) noexcept {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter || kind == OpKind::kReduce;
}
// Whether ranks add what they have: a barrier is the sum of one element.
[[nodiscard]] constexpr bool adds(OpKind kind) noexcept { return reduces(kind) || kind == OpKind::kBarrier; }
// Each of its blocks goes from one rank to one other.
[[nodiscard]] constexpr bool delivers(OpKind kind) noexcept {
  return kind == OpKind::kGather || kind == OpKind::kScatter || kind == OpKind::kAllToAll;
}
// What becomes of a block is the same on all ranks, and goes to all.
[[nodiscard]] constexpr bool reaches_all(OpKind kind) noexcept {
  return !delivers(kind) && kind != OpKind::kReduceScatter && kind != OpKind::kReduce;
}
[[nodiscard]] constexpr bool has_root(OpKind kind) noexcept {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather || kind == OpKind::kScatter;
}
[[nodiscard]] constexpr bool picks(Reduction reduction) noexcept {
  return reduction == Reduction::kMin || reduction == Reduction::kMax;
}
// Elements go through a codec; all others travel as they are.
[[nodiscard]] constexpr bool encoded(ElementType type, Reduction reduction) noexcept {
  return type == ElementType::kFloat32 && !picks(reduction);
}
// Its data has a block for each rank, all of the same length.
[[nodiscard]] constexpr bool has_shares(OpKind kind) noexcept {
  return kind == OpKind::kReduceScatter || kind == OpKind::kAllGather || delivers(kind);
}
[[nodiscard]] size_t element_bytes(ElementType type) noexcept;
[[nodiscard]] const char* element_name(ElementType type) noexcept;
[[nodiscard]] const char* op_name(OpKind kind) noexcept;
[[nodiscard]] const char* reduction_name(Reduction reduction) noexcept;

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
  std::optional<uint16_t> last_rank{};  // of the last trainer; none: it was the only one

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

enum class FailureCode : uint8_t {
  kNone,
  kSilent,     // `rank` has not answered for the peer time-out, or not to what matters: then `field` says to what
  kRestarted,  // `rank` came back without its state
  kRefused,    // `rank` is configured differently: field, ours, theirs
  kMismatch,   // `rank` runs another operation under the same number: field, ours, theirs
  kAborted,    // cancelled on `rank`; field: why it was given up there
  kNoRing,     // the ring did not come up in time: nothing was heard of `rank`
  kStuck,      // the operation took too long; `rank` is the nearest one that this one waits for; ours: the limit in
               // ns, 0: not known; theirs: 1 if that is the configuration's
  kClosed,     // `rank` was shut down, or left
  kDoubled,    // `rank` is two at once: ours and theirs say who, see kMacSource
};

// What two nodes or two operations can differ in.
enum class Field : uint8_t {
  kNone,
  kVersion,
  kWorld,
  kRank,
  kRankTable,
  kMtu,
  kCodec,
  kKind,
  kType,
  kCount,
  kRoot,
  kReduction,
  kTag,
  kNodes,
  kTrainers,
  kLocalReduce,
  kLanes,
  kUdpPort,
  kTosCompressed,
  kTosRaw,
  kTosControl,
  kAddresses,
  // Of kSilent; `ours` is a Way (collectives/diagnosis.h).
  kArrivedTos,  // packets arrive with a ToS byte that no class has: theirs
  kPacketSize,  // packets as long as this one get lost; theirs: the longest that arrived meanwhile, 0: none
  kNoAnswer,    // packets get lost, whatever their length
  // Of operations and, the second one, of nodes.
  kStrategy,    // values are StrategyId::code()
  kStrategies,  // those that nodes allow: pack_strategies()
  kBackCodec,
  kPathMtu,   // of kSilent: as kPacketSize, and theirs is the longest that does arrive, as probes have found
  kLeftOpen,  // of nodes: left_open_value()
  kChoice,    // of operations: 1 where it is the library's own, by which ranks agree on what `auto` chooses; else 0
  kTensor,    // of kAborted: the trainer wrote to the tensor while results of others waited there
};

// Of FailureCode::kDoubled: in ours and theirs of two MAC addresses, whose first byte is the lowest. Without it they
// are two incarnations.
inline constexpr uint64_t kMacSource = uint64_t{1} << 63;

struct Failure {
  FailureCode code = FailureCode::kNone;
  uint16_t rank = 0;
  Field field = Field::kNone;
  uint64_t ours = 0;  // as seen by the rank that found the difference
  uint64_t theirs = 0;

  explicit operator bool() const noexcept { return code != FailureCode::kNone; }
  bool operator==(const Failure&) const = default;
};

// "rank 3 has been silent for too long", "rank 1 refused: codec: fixed:10 here, raw there". For logs and error texts.
[[nodiscard]] std::string failure_text(const Failure& failure);
// The same for workers: allocates nothing.
using FailureText = FixedText<512>;
void add_failure(FailureText& text, const Failure& failure) noexcept;
void add_difference(FailureText& text, const Failure& failure, std::string_view here, std::string_view there) noexcept;
// ": count: 100 here, 200 there", or nothing where no difference is named; in the caller's words for here and there.
[[nodiscard]] std::string difference_text(const Failure& failure, const std::string& here, const std::string& there);

struct Completion {
  uint64_t id = 0;                // what submit() gave
  Failure failure;                // none: success
  bool residual_cleared = false;  // it is all zeros now; else the operation succeeded, never began, or has none
  Loss loss;                      // of a sample of this rank's contribution: sample_loss()
  uint64_t sent_bytes = 0;  // of its elements that this rank has sent, in runs; without packets' own headers, what
                            // was sent again, and control
};

}  // namespace gradlane
