// cables.cc - nodes in a ring, each with links to the next node and to the previous one
#include "sim/cables.h"

namespace gradlane {

size_t SimCables::sources(unsigned nodes) noexcept { return nodes < 2 ? 0 : nodes == 2 ? 2 : 2 * size_t{nodes}; }

SimCables::SimCables(SimCore& core, unsigned nodes, uint64_t seed, const LinkModel& model, const Faults& faults)
    : core_(core), nodes_(nodes) {
  const auto add = [&](unsigned from, unsigned to) {
    links_.emplace_back(from, to, sim_seed(seed, SimSeed::kPath, links_.size()));
    links_.back().set_model(model);
    links_.back().set_faults(faults);
  };
  for (unsigned i = 0; nodes > 1 && i < nodes; ++i) {
    add(i, (i + 1) % nodes);
    if (nodes > 2) add(i, (i + nodes - 1) % nodes);
  }
}

bool SimCables::joined(unsigned from, unsigned to) const noexcept {
  if (from >= nodes_ || to >= nodes_ || from == to) return false;
  return to == (from + 1) % nodes_ || from == (to + 1) % nodes_;
}

unsigned SimCables::beside(unsigned node, bool next) const noexcept {
  if (nodes_ == 1) return kNobody;
  return (next || nodes_ == 2 ? node + 1 : node + nodes_ - 1) % nodes_;
}

size_t SimCables::link_index(unsigned from, unsigned to) const noexcept {
  if (to == (from + 1) % nodes_) return nodes_ == 2 ? from : 2 * size_t{from};
  return 2 * size_t{from} + 1;
}

bool SimCables::transmit(unsigned from, unsigned to, std::span<const uint8_t> packet) {
  const size_t index = link_index(from, to);
  SimLink& link = links_[index];
  if (link.refuses()) return false;
  if (core_.filter && !core_.filter(from, to, packet)) {
    link.count_filtered();
    return true;
  }
  link.send(packet, core_.now, core_.pool);
  if (link.due() < core_.schedule.time_of(nodes_ + index)) core_.schedule.set(nodes_ + index, link.due());
  return true;
}

void SimCables::fire(size_t source) {
  SimLink& link = links_[source - nodes_];
  while (link.due() <= core_.now) {
    SimBuffer* const buffer = link.arrive(core_.pool);
    if (buffer != nullptr) host(link.to()).arrive(buffer);
  }
  core_.schedule.set(source, link.due());
}

const SimPath* SimCables::find_path(unsigned from, unsigned to) const noexcept { return &links_[link_index(from, to)]; }

void SimCables::each_path(const std::function<void(const SimPath&)>& scan) const {
  for (const SimLink& link : links_) scan(link);
}

void SimCables::set_faults(const Faults& faults) {
  for (SimLink& link : links_) link.set_faults(faults);
}

bool SimCables::set_link(unsigned from, unsigned to, const LinkModel& model) {
  links_[link_index(from, to)].set_model(model);
  return true;
}

}  // namespace gradlane
