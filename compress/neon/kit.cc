// kit.cc - the codecs that are made with the kit, in NEON (any thread)
#include "compress/codecs/define.h"

namespace gradlane::neon {

GRADLANE_KIT_CODECS(GRADLANE_DEFINE)

}  // namespace gradlane::neon
