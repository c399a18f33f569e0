// topology.h - the ranks that one rank has links to, as the allowed strategies need them
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/strategy/strategy_id.h"
#include "collectives/wire.h"

namespace gradlane {

// Returns the ranks that one rank has links to. The next and the previous rank in the ring come first. In a session,
// ranks vouch for each other by these two links (docs/exchange.md, Sessions). Then come the others that strategies
// need, the nearest ahead first.
//
// The strategy direct needs all ranks. The strategy rings:G needs the next and the previous rank in the ring of G
// ranks, and in the ring across them, G ranks away. The strategy aggregator:R needs rank R, and rank R needs all.
[[nodiscard]] std::vector<unsigned> linked_ranks(std::span<const StrategyId> strategies, unsigned world, unsigned rank);

// The ranks of linked_ranks(), with fast lookups for each packet. A link is an index into neighbours().
class Topology {
 public:
  Topology(std::span<const StrategyId> strategies, unsigned world, unsigned rank);

  [[nodiscard]] std::span<const unsigned> neighbours() const noexcept { return neighbours_; }
  [[nodiscard]] size_t links() const noexcept { return neighbours_.size(); }
  [[nodiscard]] unsigned rank_at(size_t link) const noexcept { return neighbours_[link]; }
  // Returns the number of links of the ring: 0, 1 (a world of two) or 2.
  [[nodiscard]] size_t ring_links() const noexcept { return ring_links_; }
  [[nodiscard]] size_t extra_links() const noexcept { return links() - ring_links_; }
  // Links of the ring, if there are any.
  static constexpr size_t kSuccessor = 0;
  [[nodiscard]] size_t predecessor() const noexcept { return ring_links_ - 1; }
  [[nodiscard]] std::optional<size_t> link_to(unsigned rank) const noexcept {
    if (rank >= kMaxWorld || link_of_[rank] < 0) return std::nullopt;
    return static_cast<size_t>(link_of_[rank]);
  }

 private:
  std::vector<unsigned> neighbours_;
  size_t ring_links_;
  std::array<int16_t, kMaxWorld> link_of_;  // -1: none
};

// Returns the number of packets in flight on each of the `links` links that do not belong to the ring, if a link of the
// ring has `window`. All of them together have at most 4 * `window`, unless each would have fewer than 16. None has
// more than `window`. The result is a power of two.
[[nodiscard]] size_t extra_window(size_t window, size_t links) noexcept;

}  // namespace gradlane
