// owners.cc - the routing rules of direct and aggregator:R (packet path)
#include "collectives/strategy/owners.h"

namespace gradlane {
namespace {

bool one_block(OpKind kind) { return kind == OpKind::kBroadcast || kind == OpKind::kReduce; }

}  // namespace

Owners::Owners(const Topology& topology, const StrategyId& strategy, unsigned world, unsigned rank) noexcept
    : topology_(topology), strategy_(strategy), world_(world), rank_(rank) {}

Division Owners::division(const RouteKey& route) const noexcept {
  return {.blocks = direct() && !one_block(route.kind) ? world_ : 1};
}

unsigned Owners::owner(const RouteKey& route, unsigned block) const noexcept {
  if (!direct()) return strategy_.root();
  if (one_block(route.kind)) return route.root;
  return (block + route.rotation) % world_;
}

unsigned Owners::first_of(const RouteKey& route, unsigned block) const noexcept {
  const bool any = direct() && !one_block(route.kind);
  return ((any ? block : owner(route, block)) + 1) % world_;
}

Owners::Delivery Owners::delivery(const RouteKey& route, unsigned block, unsigned sender) noexcept {
  if (route.kind == OpKind::kGather) return {.from = block, .to = route.root};
  if (route.kind == OpKind::kScatter) return {.from = route.root, .to = block};
  return {.from = sender, .to = block};
}

Step Owners::start(const RouteKey& route, unsigned block) const noexcept {
  Step step;
  if (delivers(route.kind)) {
    const auto [from, to] = delivery(route, block, rank_);
    if (from != rank_ || to == rank_) return step;
    step.expected = true;
    step.send = true;
    step.link = static_cast<uint8_t>(topology_.link_to(to).value_or(0));
    step.phase = Phase::kGather;
    step.begins = true;
    step.sink = static_cast<uint16_t>(to);
    return step;
  }
  const unsigned to = owner(route, block);
  if (adds(route.kind)) {
    if (to == rank_) return step;  // the owner adds its own elements at their turn
    step.expected = true;
    step.send = true;
    step.link = static_cast<uint8_t>(topology_.link_to(to).value_or(0));
    step.phase = Phase::kReduce;
    return step;
  }
  if (to != rank_) return step;
  step.expected = true;
  step.store = true;
  step.to_all = true;
  step.phase = Phase::kGather;
  step.begins = true;
  return step;
}

Step Owners::arrival(const RouteKey& route, Phase phase, unsigned block, size_t link) const noexcept {
  const unsigned of = owner(route, block);
  Step step;
  if (phase == Phase::kGather) {
    if (delivers(route.kind)) {
      const unsigned peer = topology_.neighbours()[link];
      const auto [from, to] = delivery(route, block, peer);
      step.expected = from == peer && to == rank_;
    } else {
      step.expected = reaches_all(route.kind) && of != rank_ && topology_.link_to(of) == link;
    }
    step.store = true;
    step.phase = Phase::kGather;
    return step;
  }
  step.expected = adds(route.kind) && of == rank_;
  step.merge = true;
  step.in_turn = true;
  step.store = true;
  step.to_all = reaches_all(route.kind);
  step.phase = Phase::kGather;
  step.begins = true;
  return step;
}

// Results need no announcement in kinds that add: an owner sends them after it got this rank's elements, so it knows
// that this rank has started. With an aggregator, other ranks receive nothing but results.
LinkSet Owners::sources(const RouteKey& route) const noexcept {
  LinkSet links;
  if (delivers(route.kind)) {
    const bool has_all = route.kind == OpKind::kAllToAll || (route.kind == OpKind::kGather && route.root == rank_);
    for (size_t link = 0; link < topology_.links(); ++link) links.set(link, has_all);
    if (route.kind == OpKind::kScatter && route.root != rank_) links.set(topology_.link_to(route.root).value_or(0));
    return links;
  }
  const unsigned blocks = division(route).blocks;
  for (unsigned block = 0; block < blocks; ++block) {
    const unsigned of = owner(route, block);
    if (of == rank_ && adds(route.kind)) {
      for (size_t link = 0; link < topology_.links(); ++link) links.set(link);
    }
    if (of != rank_ && !adds(route.kind)) links.set(topology_.link_to(of).value_or(0));
  }
  return links;
}

// In a reduce-scatter an owner has finished when all ranks have sent their elements of its block; then it forwards no
// abort. In an all-reduce, all-gather, all-to-all or barrier each rank needs data from every other rank, so none
// finishes before this rank has sent its part.
LinkSet Owners::dependents(const RouteKey& route) const noexcept {
  return route.kind == OpKind::kReduceScatter ? sources(route) : LinkSet{};
}

}  // namespace gradlane
