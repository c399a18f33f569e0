// plan.h - `gradlane plan`: a prediction of what compressing would save in a training, before anything is set up
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints to standard output. Returns the exit status. Throws SetupError for options that cannot be used.
[[nodiscard]] int run_plan(PlanOptions options);

}  // namespace gradlane
