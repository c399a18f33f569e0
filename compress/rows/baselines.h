// baselines.h - rows of what codecs are held against: floats cut short, and lossless compression
#pragma once

#include "compress/baselines.h"
#include "compress/rows/common.h"
#include "compress/scalar/scalar.h"

namespace gradlane {
namespace {

constexpr size_t trunc_block_bytes(const CodecArguments& arguments, size_t floats) {
  return trunc_bytes(arguments.bits, floats);
}

inline CodecParams trunc_params(const CodecArguments& arguments) {
  CodecParams params;
  params.bits = arguments.bits;
  return params;
}

// Of normal numbers, and of denormals. Sign and exponent take 9 bits.
inline CodecError trunc_error(const CodecArguments& arguments) {
  const int mantissa = arguments.bits - 9;
  return {.relative = std::ldexp(1.0, -mantissa), .absolute = std::ldexp(1.0, -126 - mantissa)};
}

constexpr CodecRow kBaselineRows[] = {
    {.id = CodecId::kTrunc,
     .word = "trunc",
     .usage = "trunc:B",
     .example = "trunc:16",
     .promise = "fp32 cut to B bits, relative error < 2^(9-B), cut again in every hop, B = 10..24",
     .kernels = {&scalar::kTrunc},
     .params = trunc_params,
     .min_bits = 10,
     .max_bits = 24,
     .granule = kGroupFloats,
     .max_bytes = trunc_block_bytes,
     .least_bytes = trunc_block_bytes,
     .error = trunc_error,
     .source = "the baseline of INCEPTIONN, Li et al., MICRO 2018"},
    {.id = CodecId::kDeflate,
     .word = "deflate",
     .usage = "deflate",
     .example = "deflate",
     .promise = "fp32 as it is, lossless DEFLATE",
     .kernels = {&scalar::kDeflate},
     .granule = kGroupFloats,
     .max_bytes = bytes_of<stream_max_bytes>,
     .least_bytes = bytes_of<stream_least_bytes>,
     .layout = Form::kStream,
     .source = "RFC 1951, by ISA-L's igzip"},
};

}  // namespace
}  // namespace gradlane
