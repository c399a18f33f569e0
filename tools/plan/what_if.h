// what_if.h - `gradlane plan --what-if`: which choice wins where, and by how much
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints a table, or JSON for heatmap.py. Throws SetupError.
void run_what_if(const PlanOptions& options);

}  // namespace gradlane
