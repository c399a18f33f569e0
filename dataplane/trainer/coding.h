// coding.h - which codecs can go by which strategies
#pragma once

#include <span>

#include "collectives/strategy/strategy_id.h"
#include "collectives/strategy/topology.h"
#include "compress/codec.h"

namespace gradlane {

// Somebody has all of a block's sum before others get it, and encodes it for them.
[[nodiscard]] constexpr bool has_owners(const StrategyId& strategy, size_t ranks) noexcept {
  return ranks == 1 || strategy.kind == StrategyId::Kind::kDirect || strategy.kind == StrategyId::Kind::kAggregator;
}

[[nodiscard]] inline bool carries(const StrategyId& strategy, const Codec& codec, size_t ranks) noexcept {
  return codec.row().adds || has_owners(strategy, ranks);
}

// Where these are allowed, in an exchange of so many ranks, all have links to all others. (Set-up only.)
[[nodiscard]] inline bool links_all(std::span<const StrategyId> strategies, unsigned ranks) {
  for (unsigned rank = 0; rank < ranks; ++rank) {
    if (ranks > 1 && linked_ranks(strategies, ranks, rank).size() + 1 != ranks) return false;
  }
  return true;
}

}  // namespace gradlane
