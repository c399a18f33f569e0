// codec_ways.h - which codecs' sums can go by which strategies: the rule, for all that have to know it
#pragma once

#include <span>

#include "collectives/strategy/strategy_id.h"
#include "compress/codec_table.h"

namespace gradlane {

// Blocks do not add: each needs an owner, who adds what they stand for. Not in a world of one.
[[nodiscard]] constexpr bool needs_owners(const CodecRow& row) noexcept { return !row.adds; }
// Ranks agree on something first, each with each: links_all() of what is allowed, whichever strategy it is.
[[nodiscard]] constexpr bool needs_links(const CodecRow& row) noexcept { return row.agreement != Agreement::kNone; }

// Somebody has all of a block's sum before others get it, and encodes it for them.
[[nodiscard]] constexpr bool has_owners(const StrategyId& strategy, unsigned world) noexcept {
  using Kind = StrategyId::Kind;
  return world == 1 || strategy.kind == Kind::kDirect || strategy.kind == Kind::kAggregator;
}
// Where these are allowed, all ranks have links to all others. (Set-up only.)
[[nodiscard]] bool links_all(std::span<const StrategyId> allowed, unsigned world);

// A strategy that has what the codec needs of it. Links are another question, which is not about the strategy.
[[nodiscard]] constexpr bool carries(const StrategyId& strategy, const CodecRow& row, unsigned world) noexcept {
  return !needs_owners(row) || has_owners(strategy, world);
}

}  // namespace gradlane
