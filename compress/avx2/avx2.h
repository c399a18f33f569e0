// avx2.h - the kernels of all codecs in AVX2 (any thread)
#pragma once

#include "compress/kernels.h"

namespace gradlane::avx2 {

extern const CodecOps kRaw, kBf16, kFp16, kInceptionn, kInceptionnTruncate, kFixed;

}  // namespace gradlane::avx2
