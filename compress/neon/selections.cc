// selections.cc - what ranks contribute to blocks in bit planes where that is a stage of its own, in NEON (any
// thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::neon {

GRADLANE_DEFINE_SELECTIONS(TernaryRuns)

}  // namespace gradlane::neon
