// avx512.h - the kernels in AVX-512 of codecs that are not made with the kit (any thread)
#pragma once

#include "compress/kernels.h"

namespace gradlane::avx512 {

extern const CodecOps kRaw, kBf16, kFp16, kInceptionn, kInceptionnTruncate;
extern const CodecOps kPack, kPackBf16, kPackFp16;
extern const CodecOps kFixed, kRelative, kStochastic, kTernGrad, kTbq;

}  // namespace gradlane::avx512
