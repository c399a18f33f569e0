// avx512.h - the kernels of all codecs in AVX-512 (any thread)
#pragma once

#include "compress/kernels.h"

namespace gradlane::avx512 {

extern const CodecOps kRaw, kBf16, kFp16, kInceptionn, kInceptionnTruncate;
extern const CodecOps kFixed, kRelative, kStochastic, kTernGrad, kTbq;

}  // namespace gradlane::avx512
