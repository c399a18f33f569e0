// strategies.h - the key `strategies` of a configuration file, and the nodes that they link (set-up only)
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/section.h"

namespace gradlane {

// Reads the strategies. `checked` means that the number of ranks is known. Strategies that need another number are then
// faults.
void read_strategies(const Section& root, NodeConfig& config, bool checked);

// Returns the nodes that this one exchanges packets with, for the ring and the strategies. The previous node comes
// first, then the next one, then the others by rank.
[[nodiscard]] std::vector<unsigned> linked_nodes(const NodeConfig& config);

// Returns "ring", "aggregator:0,stream", ...
[[nodiscard]] std::vector<std::string> strategy_names(const std::vector<StrategyId>& strategies);

// Returns why this node needs a link to that node, for messages: "each neighbour in the ring", "each node that strategy
// direct needs".
[[nodiscard]] std::string links_text(const NodeConfig& config, unsigned node);

}  // namespace gradlane
