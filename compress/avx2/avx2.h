// avx2.h - the codecs that have kernels of their own in AVX2: the others run the scalar ones (codec_table.cc)
#pragma once

#include "compress/kernels.h"

namespace gradlane::avx2 {

extern const CodecOps kRaw, kBf16, kFp16, kInceptionn, kInceptionnTruncate, kFixed;

}  // namespace gradlane::avx2
