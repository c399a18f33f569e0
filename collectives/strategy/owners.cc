// owners.cc - the routing rules of direct and aggregator:R (packet path)
#include "collectives/strategy/owners.h"

namespace gradlane {
namespace {

bool one_block(OpKind kind) { return kind == OpKind::kBroadcast || kind == OpKind::kReduce; }

}  // namespace

Owners::Owners(const Topology& topology, const StrategyId& strategy, unsigned world, unsigned rank) noexcept
    : topology_(topology), strategy_(strategy), world_(world), rank_(rank) {}

Division Owners::division(const Task& task) const noexcept {
  return {.blocks = direct() && !one_block(task.kind) ? world_ : 1};
}

unsigned Owners::owner(const Task& task, unsigned block) const noexcept {
  if (!direct()) return strategy_.root();
  if (one_block(task.kind)) return task.root;
  return (block + task.rotation) % world_;
}

unsigned Owners::first_of(const Task& task, unsigned block) const noexcept {
  const bool any = direct() && !one_block(task.kind);
  return ((any ? block : owner(task, block)) + 1) % world_;
}

Owners::Way Owners::way(const Task& task, unsigned block, unsigned sender) noexcept {
  if (task.kind == OpKind::kGather) return {.from = block, .to = task.root};
  if (task.kind == OpKind::kScatter) return {.from = task.root, .to = block};
  return {.from = sender, .to = block};
}

Step Owners::start(const Task& task, unsigned block) const noexcept {
  Step step;
  if (delivers(task.kind)) {
    const auto [from, to] = way(task, block, rank_);
    if (from != rank_ || to == rank_) return step;
    step.expected = true;
    step.send = true;
    step.link = static_cast<uint8_t>(topology_.link_to(to).value_or(0));
    step.phase = Phase::kGather;
    step.begins = true;
    step.sink = static_cast<uint16_t>(to);
    return step;
  }
  const unsigned to = owner(task, block);
  if (adds(task.kind)) {
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

Step Owners::arrival(const Task& task, Phase phase, unsigned block, size_t link) const noexcept {
  const unsigned of = owner(task, block);
  Step step;
  if (phase == Phase::kGather) {
    if (delivers(task.kind)) {
      const unsigned peer = topology_.neighbours()[link];
      const auto [from, to] = way(task, block, peer);
      step.expected = from == peer && to == rank_;
    } else {
      step.expected = reaches_all(task.kind) && of != rank_ && topology_.link_to(of) == link;
    }
    step.store = true;
    step.phase = Phase::kGather;
    return step;
  }
  step.expected = adds(task.kind) && of == rank_;
  step.merge = true;
  step.in_turn = true;
  step.store = true;
  step.to_all = reaches_all(task.kind);
  step.phase = Phase::kGather;
  step.begins = true;
  return step;
}

// Results need no announcement in kinds that add: an owner sends them after it got this rank's elements, so it knows
// that this rank has started. With an aggregator, other ranks receive nothing but results.
LinkSet Owners::sources(const Task& task) const noexcept {
  LinkSet links;
  if (delivers(task.kind)) {
    const bool has_all = task.kind == OpKind::kAllToAll || (task.kind == OpKind::kGather && task.root == rank_);
    for (size_t link = 0; link < topology_.links(); ++link) links.set(link, has_all);
    if (task.kind == OpKind::kScatter && task.root != rank_) links.set(topology_.link_to(task.root).value_or(0));
    return links;
  }
  const unsigned blocks = division(task).blocks;
  for (unsigned block = 0; block < blocks; ++block) {
    const unsigned of = owner(task, block);
    if (of == rank_ && adds(task.kind)) {
      for (size_t link = 0; link < topology_.links(); ++link) links.set(link);
    }
    if (of != rank_ && !adds(task.kind)) links.set(topology_.link_to(of).value_or(0));
  }
  return links;
}

// In a reduce-scatter an owner has finished when all ranks have sent their elements of its block; then it forwards no
// abort. In an all-reduce, all-gather, all-to-all or barrier each rank needs data from every other rank, so none
// finishes before this rank has sent its part.
LinkSet Owners::dependents(const Task& task) const noexcept {
  return task.kind == OpKind::kReduceScatter ? sources(task) : LinkSet{};
}

}  // namespace gradlane
