// nodes.h - the section `nodes` of a configuration file (set-up only)
#pragma once

#include <optional>
#include <vector>

#include "config/config.h"
#include "config/section.h"

namespace gradlane {

// Where a node stands, for faults.
struct NodePlace {
  unsigned rank = 0;
  Value ip;
  std::optional<Value> udp_port;
};

// Reads the table, sorted by rank. Returns where the nodes stand, in the order of the file.
[[nodiscard]] std::vector<NodePlace> read_nodes(const Value& value, NodeConfig& config);

// Checks that addresses and UDP ports tell the nodes apart, and gives them those that frames have (config/addresses.h).
// `places`: of read_nodes(), which found no fault; `config` has its lanes, trainers and UDP port.
void read_addresses(const std::vector<NodePlace>& places, NodeConfig& config);

}  // namespace gradlane
