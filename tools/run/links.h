// links.h - the strategies of `gradlane run`, and the links between nodes that they need (set-up only)
#pragma once

#include <vector>

#include "tools/run/settings.h"

namespace gradlane {

// Reads the option for strategies into `plan`, whose other fields must be set already. Throws SetupError if there would
// be too many links, with a hint on another --link.
void plan_strategies(const RunOptions& options, RunSettings& plan);

// A link between two nodes: from a node to the next one of the ring, or an additional one for a strategy.
struct RunLink {
  unsigned from = 0;
  unsigned to = 0;
  bool of_ring = false;
};

// Returns the links of a node: to the next node, to the previous one, then to others.
[[nodiscard]] std::vector<RunLink> links_of(const RunSettings& plan, unsigned node);

}  // namespace gradlane
