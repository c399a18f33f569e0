// neon.h - the kernels in NEON of codecs that are not made with the kit, without INCEPTIONN's (any thread)
#pragma once

#include "compress/kernels.h"

namespace gradlane::neon {

extern const CodecOps kRaw, kBf16, kFp16;
extern const CodecOps kFixed, kRelative, kStochastic, kTernGrad, kTbq;

}  // namespace gradlane::neon
