// tables.h - declarations of the function tables of codecs that are made with the kit, for every instruction set (rows)
#pragma once

#include "compress/codecs/list.h"
#include "compress/kernels.h"

#define GRADLANE_DECLARE(name, passes) extern const CodecOps name;
namespace gradlane::scalar {
GRADLANE_KIT_CODECS(GRADLANE_DECLARE)
}
namespace gradlane::avx2 {
GRADLANE_KIT_CODECS(GRADLANE_DECLARE)
}
namespace gradlane::avx512 {
GRADLANE_KIT_CODECS(GRADLANE_DECLARE)
}
namespace gradlane::neon {
GRADLANE_KIT_CODECS(GRADLANE_DECLARE)
}
#undef GRADLANE_DECLARE
