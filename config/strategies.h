// strategies.h - the key `strategies` of a configuration file, and the nodes that they link (set-up only)
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/section.h"

namespace gradlane {

// `checked`: the number of ranks is known, and what needs another one is found.
void read_strategies(const Section& root, NodeConfig& config, bool checked);

// The nodes that this one exchanges packets with, as the ring and the strategies need it: the one before, the next one,
// then the others by rank.
[[nodiscard]] std::vector<unsigned> linked_nodes(const NodeConfig& config);

// "ring", "aggregator:0,stream", ...
[[nodiscard]] std::vector<std::string> strategy_names(const std::vector<StrategyId>& strategies);

// What such a node is to this one, for messages: "each neighbour in the ring", "each node that strategy direct needs".
[[nodiscard]] std::string links_text(const NodeConfig& config, unsigned node);

}  // namespace gradlane
