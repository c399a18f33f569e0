// kit.cc - the codecs that are made with the kit, in AVX-512 (any thread)
#include "compress/avx512/picked_bits.h"
#include "compress/codecs/define.h"

namespace gradlane::avx512 {

GRADLANE_KIT_CODECS(GRADLANE_DEFINE)

}  // namespace gradlane::avx512
