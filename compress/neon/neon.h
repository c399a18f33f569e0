// neon.h - the kernels of codecs in NEON (any thread)
#pragma once

#include "compress/kernels.h"

namespace gradlane::neon {

extern const CodecOps kRaw, kBf16, kFp16;
extern const CodecOps kFixed, kRelative, kStochastic, kTernGrad, kTbq;

}  // namespace gradlane::neon
