// paper.h - `gradlane plan --paper`: the set-ups of MLSys'22, with its codecs and with gradlane's
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Of each rate from 1 to 30 Gb/s: how many of its set-ups gain against sync-SGD, by its own model and constants; and
// how many with gradlane's codecs, whose time is that of cost.h. Sync-SGD costs nothing but bytes
// and hops in both; gradlane's have to be faster than that in the paper's buckets and than that in their own. Throws
// SetupError.
void run_paper(const PlanOptions& options);

}  // namespace gradlane
