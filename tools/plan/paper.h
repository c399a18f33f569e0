// paper.h - `gradlane plan --paper`: the set-ups of MLSys'22, with that paper's codecs and with gradlane's
#pragma once

#include "tools/plan/options.h"

namespace gradlane {

// Prints, for rates from 1 to 30 Gb/s, how many of the paper's set-ups gain compared with sync-SGD. It counts them for
// the paper's codecs, by the paper's model and constants, and for gradlane's codecs, by the times of cost.h. Sync-SGD
// costs nothing but bytes and hops in both. gradlane's codecs must be faster than sync-SGD with the paper's buckets and
// with gradlane's own buckets. Throws SetupError.
void run_paper(const PlanOptions& options);

}  // namespace gradlane
