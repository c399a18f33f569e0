// what_if.h - `gradlane plan --what-if`: the fastest codec at each point of a grid, and what it saves
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints a table, or JSON for lab/plan/heatmap.py. Throws SetupError.
void run_what_if(const PlanOptions& options);

}  // namespace gradlane
