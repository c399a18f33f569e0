// failure.h - the cause of a failed operation or generation, as a record and as text
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fixed_text.h"

namespace gradlane {

enum class FailureCode : uint8_t {
  kNone,
  kSilent,         // `rank` was silent for the peer timeout, or packets on the link get lost; then `field` says which
  kRestarted,      // `rank` restarted and lost its state
  kRefused,        // `rank` is configured differently: field, ours, theirs
  kMismatch,       // `rank` runs another operation under the same number: field, ours, theirs
  kAborted,        // the operation was cancelled on `rank` or, if field is kTensor or kEncoded, stopped there
  kNoRing,         // the ring was not ready in time; nothing was heard of `rank`
  kStuck,          // the operation took too long; `rank` is the nearest rank that this one waits for; ours: the limit
                   // in ns, 0: unknown; theirs: 1 if the limit is the configured one
  kClosed,         // `rank` was shut down, or left
  kDuplicateRank,  // two nodes claim to be `rank`: ours and theirs identify them, see kMacSource
};

// The setting that differs between two nodes or two operations, or the subject of a failure.
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
  // Fields of kSilent. Then `ours` is a PacketPath (collectives/diagnosis.h).
  kArrivedTos,  // packets arrive with a ToS byte that belongs to no traffic class: theirs
  kPacketSize,  // packets of this length get lost; theirs: the longest that arrived meanwhile, 0: none
  kNoAnswer,    // packets of any length get lost
  // kStrategy and kBackCodec are fields of operations, kStrategies is one of nodes.
  kStrategy,    // values are StrategyId::code()
  kStrategies,  // strategies that a node allows: pack_strategies()
  kBackCodec,
  // for kSilent: packets of this length get lost; theirs: length of the longest that arrives, as probes have found
  kPathMtu,
  kAutoScope,  // for nodes: auto_scope_value()
  kChoice,     // for operations: 1 if the client library submitted it to agree on what `auto` chooses, else 0
  kTensor,     // for kAborted: the trainer wrote to the tensor while results for other ranks waited there
  kEncoded,    // for kAborted: the encoded contribution of `rank` is malformed
};

// Marks `ours` and `theirs` of FailureCode::kDuplicateRank as MAC addresses, with the first byte lowest. If this bit is
// not set, they are incarnations.
inline constexpr uint64_t kMacSource = uint64_t{1} << 63;

struct Failure {
  FailureCode code = FailureCode::kNone;
  uint16_t rank = 0;
  Field field = Field::kNone;
  uint64_t ours = 0;  // value on the rank that found the difference; `theirs`: value on `rank`
  uint64_t theirs = 0;

  explicit operator bool() const noexcept { return code != FailureCode::kNone; }
  bool operator==(const Failure&) const = default;
};

// Returns the text of a failure, for logs and error messages. Example: "rank 1 is configured differently: codec:
// fixed:10 here, raw there".
[[nodiscard]] std::string failure_text(const Failure& failure);
// A text of limited length, for workers: it allocates nothing.
using FailureText = FixedText<512>;
void add_failure(FailureText& text, const Failure& failure) noexcept;
void add_difference(FailureText& text, const Failure& failure, std::string_view here, std::string_view there) noexcept;
// Returns ": count: 100 here, 200 there". `here` and `there` are the caller's words for the two ranks. Returns an empty
// text if the failure names no difference.
[[nodiscard]] std::string difference_text(const Failure& failure, const std::string& here, const std::string& there);

}  // namespace gradlane
