// selections.cc - what ranks contribute to blocks in bit planes where that is a stage of its own, in AVX2 (any
// thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::avx2 {

GRADLANE_DEFINE_SELECTIONS(TernaryRuns)

}  // namespace gradlane::avx2
