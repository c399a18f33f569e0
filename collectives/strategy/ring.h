// ring.h - the routing rule of the ring
#pragma once

#include <cstddef>

#include "collectives/strategy/strategy.h"
#include "collectives/strategy/topology.h"

namespace gradlane {

// The ranks of a ring: `size` ranks at places 0 to size - 1. This rank is at `place`, with links to the next place and
// to the previous one.
struct SubRing {
  unsigned size = 1;
  unsigned place = 0;
  uint8_t successor = 0;
  uint8_t predecessor = 0;

  // Returns the ring of the `size` ranks first, first + step, ..., which include `rank`.
  static SubRing of(const Topology& topology, unsigned rank, unsigned size, unsigned first, unsigned step) noexcept;
};

// All data goes from a place to the next, its successor. (INCEPTIONN, MICRO 2018, algorithm 1; bandwidth-optimal:
// Patarasuk and Yuan, 2009.)
//
// Block b of a sum starts at place b+1, which sends its own elements as a partial sum. Every rank on the way adds its
// own elements and passes the sum on. Place b adds last, and has the result. This is reduce-scatter. In an all-reduce,
// the result then travels through the ring once. Place b sends it to b+1, and each rank stores it and passes it on, up
// to place b-1. All-gather is this second half alone. Broadcast is an all-gather of one block.
//
//   p = 4, block 0:   reduce   1 -> 2 -> 3 -> 0          gather   0 -> 1 -> 2 -> 3
class Ring final : public Strategy {
 public:
  explicit Ring(const SubRing& sub_ring) noexcept : sub_ring_(sub_ring) {}

  [[nodiscard]] Division division(const RouteKey& route) const noexcept override;
  [[nodiscard]] Step start(const RouteKey& route, unsigned block) const noexcept override;
  [[nodiscard]] Step arrival(const RouteKey& route, Phase phase, unsigned block, size_t link) const noexcept override;
  [[nodiscard]] LinkSet sources(const RouteKey& route) const noexcept override;

  [[nodiscard]] size_t successor() const noexcept { return sub_ring_.successor; }

  // Returns the step that forwards the abort of an operation whose failure began at place `origin` (perhaps this
  // rank's).
  [[nodiscard]] Step failure(unsigned origin) const noexcept;

 private:
  [[nodiscard]] unsigned after(unsigned place) const noexcept { return place + 1 == sub_ring_.size ? 0 : place + 1; }
  [[nodiscard]] unsigned before(unsigned place) const noexcept { return (place == 0 ? sub_ring_.size : place) - 1; }
  [[nodiscard]] Step pass_result(unsigned from) const noexcept;
  [[nodiscard]] Step pass_sum() const noexcept;

  SubRing sub_ring_;
};

}  // namespace gradlane
