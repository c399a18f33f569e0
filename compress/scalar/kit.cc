// kit.cc - the codecs that are made with the kit, in plain C++ (any thread)
#include "compress/codecs/define.h"

namespace gradlane::scalar {

GRADLANE_KIT_CODECS(GRADLANE_DEFINE)

}  // namespace gradlane::scalar
