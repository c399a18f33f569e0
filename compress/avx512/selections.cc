// selections.cc - what ranks contribute to blocks in bit planes where that is a stage of its own, in AVX-512 (any
// thread)
#include "compress/codecs/define_selections.h"

namespace gradlane::avx512 {

GRADLANE_DEFINE_SELECTIONS

}  // namespace gradlane::avx512
