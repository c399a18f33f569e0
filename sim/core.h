// core.h - the state that nodes and network of a simulation share: the time, the next events, the packets
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

// Callbacks that see packets; see SimNet. Their arguments are nodes, not ranks.
using PacketFilter = std::function<bool(unsigned from, unsigned to, std::span<const uint8_t> packet)>;
using PacketTap = std::function<void(unsigned from, unsigned to, std::span<const uint8_t> packet)>;

// The state that all nodes share. Source i of the schedule is the timer of node i. The sources of the network follow
// those of the nodes.
struct SimCore {
  SimCore(size_t sources, size_t packet_bytes, Nanos start) : now(start), schedule(sources), pool(packet_bytes) {}

  Nanos now;
  Schedule schedule;
  SimPool pool;
  std::vector<unsigned> ready;  // nodes to poll at `now`
  uint64_t pending = 0;         // operations that were submitted and have not ended
  PacketFilter filter;
  PacketTap tap;
};

}  // namespace gradlane
