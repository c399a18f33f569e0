// ring.cc - the routing rule of the ring (packet path)
#include "collectives/strategy/ring.h"

namespace gradlane {

Team Team::of(const Topology& topology, unsigned rank, unsigned size, unsigned first, unsigned step) noexcept {
  const unsigned place = (rank - first) / step;
  const auto link = [&](unsigned to) {
    return static_cast<uint8_t>(topology.link_to(first + to % size * step).value_or(0));
  };
  return {.size = size, .place = place, .successor = link(place + 1), .predecessor = link(place + size - 1)};
}

Division Ring::division(const Task& task) const noexcept {
  return {.blocks = task.kind == OpKind::kBroadcast ? 1 : team_.size};
}

// Returns the step that stores a result from place `from`, and passes it on unless the next place is `from`.
Step Ring::pass_result(unsigned from) const noexcept {
  Step step;
  step.expected = true;
  step.store = true;
  step.send = after(team_.place) != from;
  step.link = team_.successor;
  step.phase = Phase::kGather;
  step.begins = from == team_.place;
  step.sink = static_cast<uint16_t>(before(from));
  return step;
}

Step Ring::pass_sum() const noexcept {
  Step step;
  step.expected = true;
  step.send = true;
  step.link = team_.successor;
  step.phase = Phase::kReduce;
  return step;
}

Step Ring::start(const Task& task, unsigned block) const noexcept {
  if (task.kind == OpKind::kBroadcast) return team_.place == task.root ? pass_result(team_.place) : Step{};
  if (task.kind == OpKind::kAllGather) return block == team_.place ? pass_result(team_.place) : Step{};
  if (team_.place != after(block)) return {};
  return team_.size == 1 ? pass_result(team_.place) : pass_sum();
}

Step Ring::arrival(const Task& task, Phase phase, unsigned block, size_t link) const noexcept {
  if (team_.size == 1 || link != team_.predecessor) return {};
  if (phase == Phase::kGather) {
    if (task.kind == OpKind::kReduceScatter) return {};
    const unsigned from = task.kind == OpKind::kBroadcast ? task.root : block;
    return from == team_.place ? Step{} : pass_result(from);
  }
  if (!adds(task.kind) || team_.place == after(block)) return {};
  Step step;
  if (team_.place == block) {
    step = pass_result(team_.place);
    step.send = task.kind != OpKind::kReduceScatter;
  } else {
    step = pass_sum();
  }
  step.merge = true;
  return step;
}

LinkSet Ring::sources(const Task&) const noexcept {
  LinkSet links;
  if (team_.size > 1) links.set(team_.predecessor);
  return links;
}

Step Ring::failure(unsigned origin) const noexcept {
  Step step;
  step.send = team_.size > 1 && after(team_.place) != origin;
  step.link = team_.successor;
  step.phase = Phase::kAbort;
  return step;
}

}  // namespace gradlane
