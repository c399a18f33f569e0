// widths.h - `gradlane plan --widths`: how many bytes would be saved on recorded gradients if each layer had a width,
// or a codec, of its own
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints tables or JSON for each recording. The columns of a recording are the elements of the layers of --model.
// Throws SetupError.
void run_widths(const PlanOptions& options);

}  // namespace gradlane
