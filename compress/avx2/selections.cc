// selections.cc - functions that choose what ranks contribute to blocks in bit planes, in AVX2 (any thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::avx2 {

GRADLANE_DEFINE_SELECTIONS(TernaryRuns)

}  // namespace gradlane::avx2
