// switch.cc - nodes around a simulated switch, each with a port: any node reaches any other
#include "sim/switch.h"

#include <algorithm>
#include <tuple>

namespace gradlane {

SimSwitch::SimSwitch(SimCore& core, unsigned nodes, uint64_t seed, const LinkModel& model, const Faults& faults)
    : core_(core), seed_(seed), faults_(faults), ports_(nodes), paths_(size_t{nodes} * nodes) {
  for (unsigned i = 0; i < nodes; ++i) (void)set_port(i, model);
}

bool SimSwitch::set_port(unsigned node, const LinkModel& model) {
  LinkModel half = model;
  half.delay = model.delay / 2;
  ports_[node].up.set_model(half);
  half.delay = model.delay - half.delay;
  ports_[node].down.set_model(half);
  return true;
}

bool SimSwitch::joined(unsigned from, unsigned to) const noexcept {
  return from < ports_.size() && to < ports_.size() && from != to;
}

SimPath& SimSwitch::path(unsigned from, unsigned to) {
  const size_t index = from * ports_.size() + to;
  std::unique_ptr<SimPath>& path = paths_[index];
  if (path == nullptr) {
    path = std::make_unique<SimPath>(from, to, sim_seed(seed_, SimSeed::kPath, index));
    path->set_faults(faults_);
  }
  return *path;
}

const SimPath* SimSwitch::find_path(unsigned from, unsigned to) const noexcept {
  return paths_[from * ports_.size() + to].get();
}

void SimSwitch::each_path(const std::function<void(const SimPath&)>& scan) const {
  for (const auto& path : paths_) {
    if (path != nullptr) scan(*path);
  }
}

void SimSwitch::set_faults(const Faults& faults) {
  faults_ = faults;
  for (const auto& path : paths_) {
    if (path != nullptr) path->set_faults(faults);
  }
}

// ---- Packets

bool SimSwitch::transmit(unsigned from, unsigned to, std::span<const uint8_t> packet) {
  SimPath& path = this->path(from, to);
  if (path.refuses()) return false;
  SimWire& up = ports_[from].up;
  const size_t wire_bytes = up.wire_bytes(packet.size());
  if (!up.has_room(wire_bytes, core_.now)) {
    path.count_busy();
    return false;
  }
  if (core_.filter && !core_.filter(from, to, packet)) {
    path.count_filtered();
    return true;
  }
  path.enter(packet, wire_bytes, core_.now, up.occupy(wire_bytes, core_.now), core_.pool, up.queue());
  set_earlier(up_source(from), up.due());
  return true;
}

void SimSwitch::set_earlier(size_t source, Nanos due) noexcept {
  if (due < core_.schedule.time_of(source)) core_.schedule.set(source, due);
}

void SimSwitch::fire(size_t source) {
  const bool is_up = source < down_source(0);
  const size_t node = source - (is_up ? up_source(0) : down_source(0));
  SimWire& wire = is_up ? ports_[node].up : ports_[node].down;
  while (wire.due() <= core_.now) {
    SimBuffer* const buffer = wire.queue().take();
    if (is_up) {
      const auto p = static_cast<unsigned>(ports_.size());
      const unsigned turn = (buffer->from + p - ports_[buffer->to].turn) % p;
      arrivals_.push_back({buffer->to, turn, arrivals_.size(), buffer});
    } else if (path(buffer->from, buffer->to).leave(buffer, core_.pool)) {
      host(node).arrive(buffer);
    }
  }
  core_.schedule.set(source, wire.due());
}

// Forwards all packets that reached the switch at the present instant.
void SimSwitch::settle() {
  if (arrivals_.size() > 1) {
    const auto key = [](const Arrival& arrival) { return std::tuple(arrival.to, arrival.turn, arrival.order); };
    std::ranges::sort(arrivals_, {}, key);
  }
  unsigned last = kNobody;
  for (const Arrival& arrival : arrivals_) {
    if (arrival.to != last) ports_[arrival.to].turn = (arrival.buffer->from + 1) % static_cast<unsigned>(ports_.size());
    last = arrival.to;
    forward(arrival.buffer);
  }
  arrivals_.clear();
}

void SimSwitch::forward(SimBuffer* buffer) noexcept {
  SimWire& down = ports_[buffer->to].down;
  const size_t wire_bytes = down.wire_bytes(buffer->bytes);
  if (!down.has_room(wire_bytes, core_.now)) {
    path(buffer->from, buffer->to).count_queue_drop();
    core_.pool.give(buffer);
    return;
  }
  buffer->due = down.occupy(wire_bytes, core_.now);
  down.queue().put(buffer);
  set_earlier(down_source(buffer->to), down.due());
}

}  // namespace gradlane
