// rings.cc - the routing rule of rings:G (packet path)
#include "collectives/strategy/rings.h"

namespace gradlane {

Rings::Rings(const Topology& topology, unsigned world, unsigned rank, unsigned group) noexcept
    : group_(group),
      place_(rank % group),
      inside_(Team::of(topology, rank, group, rank - place_, 1)),
      across_(Team::of(topology, rank, world / group, place_, group)) {}

// Returns the task of a stage as its ring sees it.
Task Rings::part(const Task& task) noexcept {
  constexpr OpKind kKinds[] = {OpKind::kReduceScatter, OpKind::kAllReduce, OpKind::kAllGather};
  Task part = task;
  part.kind = kKinds[task.stage];
  return part;
}

Division Rings::division(const Task& task) const noexcept {
  Division division = ring(task.stage).division(part(task));
  if (task.stage == 1) {
    division.shares = group_;
    division.share = place_;
  }
  return division;
}

Step Rings::start(const Task& task, unsigned block) const noexcept { return ring(task.stage).start(part(task), block); }

Step Rings::arrival(const Task& task, Phase phase, unsigned block, size_t link) const noexcept {
  return ring(task.stage).arrival(part(task), phase, block, link);
}

LinkSet Rings::sources(const Task& task) const noexcept { return ring(task.stage).sources(part(task)); }

// A group may have finished the operation while another one has not. The ring of all ranks, which forwards aborts, goes
// through both.
LinkSet Rings::dependents(const Task&) const noexcept {
  LinkSet links;
  for (const Ring* const ring : {&inside_, &across_}) links.set(ring->successor());
  return links;
}

}  // namespace gradlane
