// session_slots.cc - slots for a node's trainers: free, taken, or leaving (control thread)
#include "dataplane/trainer/session_slots.h"

#include <algorithm>
#include <cassert>
#include <optional>

namespace gradlane {

Slots::Slots(const NodeConfig& config, const std::vector<ControlChannel*>& channels, const std::vector<int>& doorbells)
    : node_(config.rank),
      first_rank_(config.rank * config.trainers),
      world_(config.nodes.size() * config.trainers),
      slots_(config.trainers) {
  assert(channels.size() == doorbells.size() * config.trainers);
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    for (size_t lane = 0; lane < doorbells.size(); ++lane) {
      slots_[slot].lanes.push_back({channels[lane * slots_.size() + slot], doorbells[lane]});
    }
  }
}

std::string Slots::ranks() const {
  const size_t last = first_rank_ + slots_.size() - 1;
  if (slots_.size() == 1) return "rank " + std::to_string(first_rank_);
  return "ranks " + std::to_string(first_rank_) + " to " + std::to_string(last);
}

// Returns the answer about a slot that is not taken.
Slots::Answer Slots::answer_for(unsigned slot) const {
  const HeldMemory& held = slots_[slot].held;
  if (held.count() < GL_MAX_SEGMENTS) return {Answer::Kind::kYours, slot, {}, 0};
  return {Answer::Kind::kRefused, 0,
          "pid " + std::to_string(held.pid()) + ", which has left rank " + std::to_string(rank_of(slot)) +
              ", or its children still hold " + std::to_string(held.count()) + " segments of shared memory: end them",
          0};
}

Slots::Answer Slots::ask(int rank) const {
  using Kind = Answer::Kind;
  if (rank == -1) {
    std::optional<Answer> free;
    for (unsigned slot = 0; slot < slots_.size() && (!free || free->kind != Kind::kYours); ++slot) {
      if (!slots_[slot].taken) free = answer_for(slot);
    }
    const bool soon = std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.leaving; });
    if (free && (free->kind == Kind::kYours || !soon)) return *free;
    return {soon ? Kind::kSoon : Kind::kRefused, 0, "all trainers of this node are connected already (" + ranks() + ")",
            0};
  }
  const auto wanted = static_cast<unsigned>(rank);
  if (wanted < first_rank_ || wanted - first_rank_ >= slots_.size()) {
    return {Kind::kRefused, 0,
            "rank " + std::to_string(rank) + " is not on this node: node " + std::to_string(node_) + " has " + ranks() +
                ", of " + std::to_string(world_) + " ranks",
            static_cast<uint32_t>(world_)};
  }
  const Slot& slot = slots_[wanted - first_rank_];
  if (!slot.taken) return answer_for(wanted - first_rank_);
  if (!slot.leaving) {
    return {Kind::kRefused, 0, "rank " + std::to_string(rank) + " is taken by pid " + std::to_string(slot.pid), 0};
  }
  return {Kind::kSoon, 0,
          "rank " + std::to_string(rank) + " was pid " + std::to_string(slot.pid) +
              ", which has left, but its operations have not ended yet; try again",
          0};
}

}  // namespace gradlane
