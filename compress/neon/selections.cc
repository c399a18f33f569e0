// selections.cc - functions that choose what ranks contribute to blocks in bit planes, in NEON (any thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::neon {

GRADLANE_DEFINE_SELECTIONS(TernaryRuns)

}  // namespace gradlane::neon
