// scalar.h - scalar kernels of each codec, a file each: they are the specification, and run where there are no faster
// ones
#pragma once

#include "compress/kernels.h"

namespace gradlane::scalar {

extern const CodecOps kRaw, kBf16, kFp16, kInceptionn, kInceptionnTruncate, kInceptionnLiteral;
extern const CodecOps kPack, kPackBf16, kPackFp16;
extern const CodecOps kFixed, kRelative, kStochastic, kTernGrad, kTbq;

}  // namespace gradlane::scalar
