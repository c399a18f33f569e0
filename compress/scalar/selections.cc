// selections.cc - functions that choose what ranks contribute to blocks in bit planes, for all CPUs (any thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::scalar {

GRADLANE_DEFINE_SELECTIONS(TernaryRuns)

}  // namespace gradlane::scalar
