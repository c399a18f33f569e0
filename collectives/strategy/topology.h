// topology.h - which ranks packets are exchanged with, as the strategies that are allowed need it
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

// The ranks that one rank has links to: the next one of the ring and the one before, by which ranks vouch for each
// other (docs/exchange.md, Sessions), and then those that strategies need beside them, the nearest ahead first.
//
// direct: all; rings:G: the next one and the one before in the ring of G, and the same across the rings, G ranks away;
// aggregator:R: rank R, of which all are.
[[nodiscard]] std::vector<unsigned> linked_ranks(std::span<const StrategyId> strategies, unsigned world, unsigned rank);

// The same, to be asked per packet. Links are numbers of neighbours().
class Topology {
 public:
  Topology(std::span<const StrategyId> strategies, unsigned world, unsigned rank);

  [[nodiscard]] std::span<const unsigned> neighbours() const noexcept { return neighbours_; }
  [[nodiscard]] size_t links() const noexcept { return neighbours_.size(); }
  [[nodiscard]] unsigned rank_at(size_t link) const noexcept { return neighbours_[link]; }
  // Those of the ring: 0, 1 (a world of two) or 2.
  [[nodiscard]] size_t ring_links() const noexcept { return ring_links_; }
  [[nodiscard]] size_t extra_links() const noexcept { return links() - ring_links_; }
  // Where there are ring links.
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

// Packets in flight on each link beside the ring's, of which there are `links`, where a link of the ring has `window`:
// all of them together have four times that, and each one 16 at least. A power of two.
[[nodiscard]] size_t extra_window(size_t window, size_t links) noexcept;

}  // namespace gradlane
