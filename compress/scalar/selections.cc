// selections.cc - what ranks contribute to blocks in bit planes where that is a stage of its own, in plain C++ (any
// thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::scalar {

GRADLANE_DEFINE_SELECTIONS(TernaryRuns)

}  // namespace gradlane::scalar
