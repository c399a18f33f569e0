// nodes.h - the section `nodes` of a configuration file (set-up only)
#pragma once

#include <optional>
#include <vector>

#include "config/config.h"
#include "config/section.h"

namespace gradlane {

// The place of a node in the file, for faults.
struct NodePlace {
  unsigned rank = 0;
  Value ip;
  std::optional<Value> udp_port;
};

// Reads the table, and sorts it by rank. Returns the places of the nodes, in the order of the file.
[[nodiscard]] std::vector<NodePlace> read_nodes(const Value& value, NodeConfig& config);

// Checks that addresses and UDP ports distinguish the nodes, and sets the addresses in frames (config/addresses.h).
// `places` are those of read_nodes(), which found no fault. `config` has its lanes, trainers and UDP port.
void read_addresses(const std::vector<NodePlace>& places, NodeConfig& config);

}  // namespace gradlane
