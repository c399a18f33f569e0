// rings.cc - the routing rule of rings:G (packet path)
#include "collectives/strategy/rings.h"

namespace gradlane {

Rings::Rings(const Topology& topology, unsigned world, unsigned rank, unsigned group) noexcept
    : group_(group),
      place_(rank % group),
      inside_(SubRing::of(topology, rank, group, rank - place_, 1)),
      across_(SubRing::of(topology, rank, world / group, place_, group)) {}

// Returns the route of a stage as the ring of that stage sees it.
RouteKey Rings::part(const RouteKey& route) noexcept {
  constexpr OpKind kKinds[] = {OpKind::kReduceScatter, OpKind::kAllReduce, OpKind::kAllGather};
  RouteKey part = route;
  part.kind = kKinds[route.stage];
  return part;
}

Division Rings::division(const RouteKey& route) const noexcept {
  Division division = ring(route.stage).division(part(route));
  if (route.stage == 1) {
    division.shares = group_;
    division.share = place_;
  }
  return division;
}

Step Rings::start(const RouteKey& route, unsigned block) const noexcept {
  return ring(route.stage).start(part(route), block);
}

Step Rings::arrival(const RouteKey& route, Phase phase, unsigned block, size_t link) const noexcept {
  return ring(route.stage).arrival(part(route), phase, block, link);
}

LinkSet Rings::sources(const RouteKey& route) const noexcept { return ring(route.stage).sources(part(route)); }

// A group may have finished the operation while another one has not. The ring of all ranks, which forwards aborts, goes
// through both.
LinkSet Rings::dependents(const RouteKey&) const noexcept {
  LinkSet links;
  for (const Ring* const ring : {&inside_, &across_}) links.set(ring->successor());
  return links;
}

}  // namespace gradlane
