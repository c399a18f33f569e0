// scalar.h - the scalar kernels of each codec, a file each: the specification, and what runs where there is no AVX2
#pragma once

#include "compress/kernels.h"

namespace gradlane::scalar {

extern const CodecOps kRaw, kBf16, kFp16, kInceptionn, kInceptionnTruncate;
extern const CodecOps kFixed, kRelative, kStochastic, kTernGrad, kTbq;

}  // namespace gradlane::scalar
