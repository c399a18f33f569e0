// selections.cc - what ranks contribute to blocks in bit planes where that is a stage of its own, for all CPUs (any
// thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::scalar {

GRADLANE_DEFINE_SELECTIONS(TernaryRuns)

}  // namespace gradlane::scalar
