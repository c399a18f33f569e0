// kit.cc - the codecs that are made with the kit, for all CPUs (any thread)
#include "compress/codecs/define.h"

namespace gradlane::scalar {

GRADLANE_KIT_CODECS(GRADLANE_DEFINE)

}  // namespace gradlane::scalar
