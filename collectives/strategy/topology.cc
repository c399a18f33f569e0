// topology.cc - the ranks that one rank has links to (set-up code)
#include "collectives/strategy/topology.h"

#include <algorithm>
#include <bit>

namespace gradlane {
namespace {

using Kind = StrategyId::Kind;

bool linked(const StrategyId& strategy, unsigned world, unsigned a, unsigned b) {
  const unsigned group = strategy.group();
  switch (strategy.kind) {
    case Kind::kRing:
      return false;
    case Kind::kDirect:
      return true;
    case Kind::kAggregator:
      return a == strategy.root() || b == strategy.root();
    case Kind::kRings:
      break;
  }
  const unsigned ahead = (b + world - a) % world;
  if (a % group == b % group) return ahead == group || ahead == world - group;
  const unsigned inside = (b % group + group - a % group) % group;
  return a / group == b / group && (inside == 1 || inside == group - 1);
}

}  // namespace

std::vector<unsigned> linked_ranks(std::span<const StrategyId> strategies, unsigned world, unsigned rank) {
  std::vector<unsigned> ranks;
  if (world > 1) ranks.push_back((rank + 1) % world);
  if (world > 2) ranks.push_back((rank + world - 1) % world);
  for (unsigned ahead = 2; ahead + 1 < world; ++ahead) {
    const unsigned other = (rank + ahead) % world;
    const auto links = [&](const StrategyId& it) { return linked(it, world, rank, other); };
    if (std::ranges::any_of(strategies, links)) ranks.push_back(other);
  }
  return ranks;
}

Topology::Topology(std::span<const StrategyId> strategies, unsigned world, unsigned rank)
    : neighbours_(linked_ranks(strategies, world, rank)), ring_links_(std::min(world - 1, 2U)) {
  link_of_.fill(-1);
  for (size_t i = 0; i < neighbours_.size(); ++i) link_of_[neighbours_[i]] = static_cast<int16_t>(i);
}

size_t extra_window(size_t window, size_t links) noexcept {
  constexpr size_t kLeast = 16;
  if (links == 0) return 0;
  return std::clamp(std::bit_floor(4 * window / links), std::min(kLeast, window), window);
}

}  // namespace gradlane
