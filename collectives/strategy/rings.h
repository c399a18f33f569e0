// rings.h - the routing rule of rings:G: rings of G ranks, and rings across them
#pragma once

#include <cstddef>

#include "collectives/strategy/ring.h"
#include "collectives/strategy/strategy.h"
#include "collectives/strategy/topology.h"

namespace gradlane {

// p ranks form p/G groups of G consecutive ranks. An all-reduce has three stages (INCEPTIONN, MICRO 2018, Figure 1c):
//
//   1  reduce-scatter of G shares in the ring of the group: place i ends with share i of the group's sum
//   2  all-reduce of share i in the ring of the ranks at place i of all groups
//   3  all-gather in the ring of the group
//
//   p = 6, G = 3:    0 -> 1 -> 2 (-> 0)     stages 1 and 3
//                    |    |    |            stage 2
//                    3 -> 4 -> 5 (-> 3)
//
// A rank sends as many bytes as in one ring of all ranks. The last byte makes 2 (G - 1) + 2 (p/G - 1) hops, not 2 (p -
// 1).
class Rings final : public Strategy {
 public:
  Rings(const Topology& topology, unsigned world, unsigned rank, unsigned group) noexcept;

  [[nodiscard]] unsigned stages(OpKind) const noexcept override { return 3; }
  [[nodiscard]] Division division(const RouteKey& route) const noexcept override;
  [[nodiscard]] Step start(const RouteKey& route, unsigned block) const noexcept override;
  [[nodiscard]] Step arrival(const RouteKey& route, Phase phase, unsigned block, size_t link) const noexcept override;
  [[nodiscard]] LinkSet sources(const RouteKey& route) const noexcept override;
  [[nodiscard]] LinkSet dependents(const RouteKey& route) const noexcept override;

 private:
  [[nodiscard]] const Ring& ring(unsigned stage) const noexcept { return stage == 1 ? across_ : inside_; }
  [[nodiscard]] static RouteKey part(const RouteKey& route) noexcept;

  unsigned group_;
  unsigned place_;
  Ring inside_;
  Ring across_;
};

}  // namespace gradlane
