// strategy_id.h - which way round an operation goes, as callers name it: "ring", "direct", "rings:4", "aggregator:0"
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fixed_text.h"
#include "collectives/op_kind.h"

namespace gradlane {

using StrategyName = FixedText<32>;

// docs/exchange.md has a picture of each.
//
// ring          every block goes round all ranks. (INCEPTIONN, MICRO 2018)
// direct        every block has an owner, which all others send to, and which sends to all others. (HiPress, SOSP 2021:
//               a parameter server with every worker a server)
// rings:G       rings of G ranks in a row, and across those rings; G divides the number of ranks. (INCEPTIONN, Figure
//               1c)
// aggregator:R  all send to rank R, which adds and sends to all: the baseline of INCEPTIONN. R begins to send when it
//               has the whole sum; with ",stream" as soon as it has some of it.
struct StrategyId {
  enum class Kind : uint8_t { kRing, kDirect, kRings, kAggregator };  // on the wire

  Kind kind = Kind::kRing;
  uint8_t param = 0;    // rings: G - 1; aggregator: R
  bool stream = false;  // aggregator

  [[nodiscard]] unsigned group() const noexcept { return param + 1U; }  // ranks of a ring of `rings:G`
  [[nodiscard]] unsigned root() const noexcept { return param; }        // of an aggregator
  [[nodiscard]] StrategyName name() const noexcept;                     // find_strategy() takes it
  // For the ABI and for messages: 0 is none, and never a strategy's.
  [[nodiscard]] uint32_t code() const noexcept;
  bool operator==(const StrategyId&) const = default;
};
inline constexpr size_t kStrategyKinds = 4;
// Of all strategies of that kind: "rings".
[[nodiscard]] const char* strategy_word(StrategyId::Kind kind) noexcept;

// What to write, for help texts: "ring, direct, rings:G, aggregator:R[,stream]".
inline constexpr const char* kStrategyUsage = "ring, direct, rings:G, aggregator:R[,stream]";

// Throws SetupError, saying what there is.
[[nodiscard]] StrategyId find_strategy(std::string_view name);
// Several, with commas between them; ",stream" belongs to the aggregator before it. Throws SetupError.
[[nodiscard]] std::vector<StrategyId> find_strategies(std::string_view names);
// Of what code() gave; none: it gives no such number.
[[nodiscard]] std::optional<StrategyId> strategy_of(uint32_t code) noexcept;

// An exchange allows so many at most, so that they fit in one number: 12 bits each, the first one lowest. 0: the ring
// alone, which hellos need not tell of.
inline constexpr size_t kMaxStrategies = 5;
[[nodiscard]] uint64_t pack_strategies(std::span<const StrategyId> strategies) noexcept;
// "ring, direct"; whatever the number is.
[[nodiscard]] FixedText<160> packed_names(uint64_t packed) noexcept;

// Why not in a world of so many ranks: a text for people; empty: it is possible.
[[nodiscard]] std::string strategy_fault(const StrategyId& strategy, unsigned world);
// Whether it can do such operations. (The ring can do all but those that need direct links.)
[[nodiscard]] bool supports(const StrategyId& strategy, OpKind kind) noexcept;

}  // namespace gradlane
