// widths.h - `gradlane plan --widths`: bytes that a width, or a codec, for each layer would save on recorded gradients
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints tables or JSON for each recording. Its columns are the elements of the layers of --model. Throws SetupError.
void run_widths(const PlanOptions& options);

}  // namespace gradlane
