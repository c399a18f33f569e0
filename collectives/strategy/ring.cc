// ring.cc - the routing rule of the ring (packet path)
#include "collectives/strategy/ring.h"

namespace gradlane {

SubRing SubRing::of(const Topology& topology, unsigned rank, unsigned size, unsigned first, unsigned step) noexcept {
  const unsigned place = (rank - first) / step;
  const auto link = [&](unsigned to) {
    return static_cast<uint8_t>(topology.link_to(first + to % size * step).value_or(0));
  };
  return {.size = size, .place = place, .successor = link(place + 1), .predecessor = link(place + size - 1)};
}

Division Ring::division(const RouteKey& route) const noexcept {
  return {.blocks = route.kind == OpKind::kBroadcast ? 1 : sub_ring_.size};
}

// Returns the step that stores a result from place `from`, and passes it on unless the next place is `from`.
Step Ring::pass_result(unsigned from) const noexcept {
  Step step;
  step.expected = true;
  step.store = true;
  step.send = after(sub_ring_.place) != from;
  step.link = sub_ring_.successor;
  step.phase = Phase::kGather;
  step.begins = from == sub_ring_.place;
  step.sink = static_cast<uint16_t>(before(from));
  return step;
}

Step Ring::pass_sum() const noexcept {
  Step step;
  step.expected = true;
  step.send = true;
  step.link = sub_ring_.successor;
  step.phase = Phase::kReduce;
  return step;
}

Step Ring::start(const RouteKey& route, unsigned block) const noexcept {
  if (route.kind == OpKind::kBroadcast) return sub_ring_.place == route.root ? pass_result(sub_ring_.place) : Step{};
  if (route.kind == OpKind::kAllGather) return block == sub_ring_.place ? pass_result(sub_ring_.place) : Step{};
  if (sub_ring_.place != after(block)) return {};
  return sub_ring_.size == 1 ? pass_result(sub_ring_.place) : pass_sum();
}

Step Ring::arrival(const RouteKey& route, Phase phase, unsigned block, size_t link) const noexcept {
  if (sub_ring_.size == 1 || link != sub_ring_.predecessor) return {};
  if (phase == Phase::kGather) {
    if (route.kind == OpKind::kReduceScatter) return {};
    const unsigned from = route.kind == OpKind::kBroadcast ? route.root : block;
    return from == sub_ring_.place ? Step{} : pass_result(from);
  }
  if (!adds(route.kind) || sub_ring_.place == after(block)) return {};
  Step step;
  if (sub_ring_.place == block) {
    step = pass_result(sub_ring_.place);
    step.send = route.kind != OpKind::kReduceScatter;
  } else {
    step = pass_sum();
  }
  step.merge = true;
  return step;
}

LinkSet Ring::sources(const RouteKey&) const noexcept {
  LinkSet links;
  if (sub_ring_.size > 1) links.set(sub_ring_.predecessor);
  return links;
}

Step Ring::failure(unsigned origin) const noexcept {
  Step step;
  step.send = sub_ring_.size > 1 && after(sub_ring_.place) != origin;
  step.link = sub_ring_.successor;
  step.phase = Phase::kAbort;
  return step;
}

}  // namespace gradlane
