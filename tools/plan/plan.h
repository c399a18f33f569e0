// plan.h - `gradlane plan`: what compressing would bring a training, before anything is set up
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints to standard output. Throws SetupError for options that cannot be used.
void run_plan(const PlanOptions& options);

}  // namespace gradlane
