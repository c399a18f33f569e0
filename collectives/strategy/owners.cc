// owners.cc - the routing rules of direct and aggregator:R (packet path)
#include "collectives/strategy/owners.h"

namespace gradlane {
namespace {

bool adds(OpKind kind) { return reduces(kind) || kind == OpKind::kBarrier; }

}  // namespace

Owners::Owners(const Topology& topology, const StrategyId& strategy, unsigned world, unsigned rank) noexcept
    : topology_(topology), strategy_(strategy), world_(world), rank_(rank) {}

Division Owners::division(const Task& task) const noexcept {
  return {.blocks = direct() && task.kind != OpKind::kBroadcast ? world_ : 1};
}

unsigned Owners::owner(const Task& task, unsigned block) const noexcept {
  if (!direct()) return strategy_.root();
  if (task.kind == OpKind::kBroadcast) return task.root;
  return (block + task.rotation) % world_;
}

unsigned Owners::first_of(unsigned block) const noexcept {
  return ((direct() ? block : strategy_.root()) + 1) % world_;
}

Step Owners::start(const Task& task, unsigned block) const noexcept {
  const unsigned to = owner(task, block);
  Step step;
  if (adds(task.kind)) {
    if (to == rank_) return step;  // its turn comes
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
    step.expected = task.kind != OpKind::kReduceScatter && of != rank_ && topology_.link_to(of) == link;
    step.store = true;
    step.phase = Phase::kGather;
    return step;
  }
  step.expected = adds(task.kind) && of == rank_;
  step.merge = true;
  step.in_turn = true;
  step.store = true;
  step.to_all = task.kind != OpKind::kReduceScatter;
  step.phase = Phase::kGather;
  step.begins = true;
  return step;
}

// Who has sent its part knows that an owner has started, so results come unasked. An aggregator's are all there is to
// come to the others, and they have sent theirs.
LinkSet Owners::sources(const Task& task) const noexcept {
  LinkSet links;
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

}  // namespace gradlane
