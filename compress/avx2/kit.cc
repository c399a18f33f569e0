// kit.cc - the codecs that are made with the kit, in AVX2 (any thread)
#include "compress/codecs/define.h"

namespace gradlane::avx2 {

GRADLANE_KIT_CODECS(GRADLANE_DEFINE)

}  // namespace gradlane::avx2
