// codec_needs.h - the rules for which strategies carry sums of which codecs, for all callers that must know them
#pragma once

#include <span>

#include "collectives/strategy/strategy_id.h"
#include "compress/codec_table.h"

namespace gradlane {

// Returns whether encoded blocks cannot be added. Then each block needs an owner, which adds what they decode to. A
// world of one needs no owners.
[[nodiscard]] constexpr bool needs_owners(const CodecRow& row) noexcept { return !row.is_additive; }
// Returns whether all ranks must first agree on a value, for which every rank sends to every other. Then links_all()
// must hold for the allowed strategies, whichever strategy the operation uses.
[[nodiscard]] constexpr bool needs_links(const CodecRow& row) noexcept { return row.agreement != Agreement::kNone; }

// Returns whether one rank has the complete sum of a block before others get it, and encodes it for them.
[[nodiscard]] constexpr bool has_owners(const StrategyId& strategy, unsigned world) noexcept {
  using Kind = StrategyId::Kind;
  return world == 1 || strategy.kind == Kind::kDirect || strategy.kind == Kind::kAggregator;
}
// Returns whether all ranks have links to all others if these strategies are allowed. (Set-up only.)
[[nodiscard]] bool links_all(std::span<const StrategyId> allowed, unsigned world);

// Returns whether the strategy has the owners that the codec may need. It does not check links, which do not depend on
// the operation's strategy.
[[nodiscard]] constexpr bool carries(const StrategyId& strategy, const CodecRow& row, unsigned world) noexcept {
  return !needs_owners(row) || has_owners(strategy, world);
}

}  // namespace gradlane
