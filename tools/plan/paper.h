// paper.h - `gradlane plan --paper`: the set-ups of MLSys'22 by that paper's own model
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints the published numbers beside those of the model, and in how many set-ups a codec gains, for rates from 1 to 30
// Gb/s. No calibration and no codec of gradlane is part of it. Throws SetupError if options were given that it ignores.
void run_paper(const PlanOptions& options);

}  // namespace gradlane
