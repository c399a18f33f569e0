// links.h - the strategies of `gradlane run`, and which nodes have links for them (set-up only)
#pragma once

#include <vector>

#include "tools/run/plan.h"

namespace gradlane {

// Reads the option, when all else of the plan is known. Throws SetupError, with what to use instead, if there would be
// too many links.
void plan_strategies(const RunOptions& options, RunPlan& plan);

// A link between two nodes: the one from a node to the next of the ring, or one that a strategy needs beside the ring.
struct RunLink {
  unsigned from = 0;
  unsigned to = 0;
  bool of_ring = false;
};

// Of a node: to the next one, to the one before, then to others.
[[nodiscard]] std::vector<RunLink> links_of(const RunPlan& plan, unsigned node);

}  // namespace gradlane
