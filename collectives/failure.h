// failure.h - why an operation or a generation failed: the record and its text
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fixed_text.h"

namespace gradlane {

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

// The setting in which two nodes or two operations differ, or what a failure is about.
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
  // kSilent has these; `ours` is a Way (collectives/diagnosis.h).
  kArrivedTos,  // packets arrive with a ToS byte that no class has: theirs
  kPacketSize,  // packets as long as this one get lost; theirs: the longest that arrived meanwhile, 0: none
  kNoAnswer,    // packets get lost, whatever their length
  // Operations have these; nodes have the second one.
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
// Workers use this one: it allocates nothing.
using FailureText = FixedText<512>;
void add_failure(FailureText& text, const Failure& failure) noexcept;
void add_difference(FailureText& text, const Failure& failure, std::string_view here, std::string_view there) noexcept;
// ": count: 100 here, 200 there", or nothing where no difference is named; in the caller's words for here and there.
[[nodiscard]] std::string difference_text(const Failure& failure, const std::string& here, const std::string& there);

}  // namespace gradlane
