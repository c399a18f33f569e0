// core.h - what nodes and network of a simulation share: time, what happens next, packets
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/time.h"
#include "sim/pool.h"
#include "sim/schedule.h"

namespace gradlane {

// Who looks at packets; see SimNet. Nodes, not ranks.
using PacketFilter = std::function<bool(unsigned from, unsigned to, std::span<const uint8_t> packet)>;
using PacketTap = std::function<void(unsigned from, unsigned to, std::span<const uint8_t> packet)>;

// What the nodes share. Source i of the schedule is node i's timer; those of the network come behind
// the nodes.
struct SimCore {
  SimCore(size_t sources, size_t packet_bytes, Nanos start) : now(start), schedule(sources), pool(packet_bytes) {}

  Nanos now;
  Schedule schedule;
  SimPool pool;
  std::vector<unsigned> ready;  // nodes to poll at `now`
  uint64_t pending = 0;         // operations
  PacketFilter filter;
  PacketTap tap;
};

}  // namespace gradlane
