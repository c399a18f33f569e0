// strategy_id.h - the strategy of an operation, and its names for users: "ring", "direct", "rings:4", "aggregator:0"
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

// docs/exchange.md explains each strategy.
//
//   ring          Every block travels through all ranks. (INCEPTIONN, MICRO 2018)
//   direct        Every block has an owner. All other ranks send to it, and it sends to all of them.
//                 (HiPress, SOSP 2021: a parameter server in which every worker is a server)
//   rings:G       There are rings of G consecutive ranks, and rings across those. G divides the number of ranks.
//                 (INCEPTIONN, Figure 1c)
//   aggregator:R  All ranks send to rank R, which adds and sends to all: the baseline of INCEPTIONN. R begins to send
//                 when it has the whole sum, with ",stream" as soon as it has some of it.
struct StrategyId {
  enum class Kind : uint8_t { kRing, kDirect, kRings, kAggregator };  // on the wire

  Kind kind = Kind::kRing;
  uint8_t param = 0;    // rings: G - 1; aggregator: R
  bool stream = false;  // aggregator

  [[nodiscard]] unsigned group() const noexcept { return param + 1U; }  // number of ranks in a ring of `rings:G`
  [[nodiscard]] unsigned root() const noexcept { return param; }        // rank of an aggregator
  [[nodiscard]] StrategyName name() const noexcept;                     // name for find_strategy()
  // Returns the number of the strategy, for the ABI and for messages. It is never 0, which means "none".
  [[nodiscard]] uint32_t code() const noexcept;
  bool operator==(const StrategyId&) const = default;
};
inline constexpr size_t kStrategyKinds = 4;
// Returns the word that names of all strategies of that kind begin with: "rings".
[[nodiscard]] const char* strategy_word(StrategyId::Kind kind) noexcept;

// The syntax of names, for help texts.
inline constexpr const char* kStrategyUsage = "ring, direct, rings:G, aggregator:R[,stream]";

// Returns the strategy with that name. If there is none, throws SetupError that lists the names.
[[nodiscard]] StrategyId find_strategy(std::string_view name);
// Reads several names with commas between them. A ",stream" belongs to the aggregator before it. Throws SetupError.
[[nodiscard]] std::vector<StrategyId> find_strategies(std::string_view names);
// Returns the strategy with that code(). None: no strategy has that code.
[[nodiscard]] std::optional<StrategyId> strategy_of(uint32_t code) noexcept;

// The maximum number of strategies that an exchange allows. They fit in one number with 12 bits each, the first one
// lowest. 0: the ring alone, which hellos need not mention.
inline constexpr size_t kMaxStrategies = 5;
[[nodiscard]] uint64_t pack_strategies(std::span<const StrategyId> strategies) noexcept;
// Returns "ring, direct", for example. Any number is allowed.
[[nodiscard]] FixedText<160> packed_names(uint64_t packed) noexcept;

// Returns a text for people: why the strategy is not possible in a world of that size. Empty: it is possible.
[[nodiscard]] std::string strategy_fault(const StrategyId& strategy, unsigned world);
// Returns whether the strategy can do operations of that kind. (The ring can do all that need no direct links.)
[[nodiscard]] bool supports(const StrategyId& strategy, OpKind kind) noexcept;

}  // namespace gradlane
