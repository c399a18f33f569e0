// widths.h - `gradlane plan --widths`: what a width, or a codec, for each layer would save on recorded gradients
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints tables or JSON for each recording, whose columns are the layers of --model. Throws SetupError.
void run_widths(const PlanOptions& options);

}  // namespace gradlane
