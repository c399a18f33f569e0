// selection.h - functions that choose what ranks contribute to blocks in bit planes, for every instruction set
//
// Codecs fixed:b,stochastic, terngrad and tbq use these functions, and fixed:rel=B uses the scan among them.
// selections.cc of each instruction set defines them.
//
// Like kernels.h, this file has plain data and declarations, and no function with a body.
#pragma once

#include "compress/kernels.h"

namespace gradlane {

// A run of this rank's own floats to select from.
struct SelectJob {
  const float* in;
  size_t floats;
  uint64_t position;  // position of in[0] in the whole tensor
  float* out;         // contributions: multiples of the step, Inf and NaN
};

}  // namespace gradlane

#define GRADLANE_SELECTIONS                                                               \
  void look_at(const CodecParams&, TensorScan& scan, const ScanJob& job) noexcept;        \
  void select_stochastic(const CodecParams& params, const SelectJob& job) noexcept;       \
  EncodeResult encode_terngrad(const CodecParams& params, const EncodeJob& job) noexcept; \
  HopResult hop_terngrad(const CodecParams& params, const HopJob& job) noexcept;          \
  EncodeResult encode_tbq(const CodecParams& params, const EncodeJob& job) noexcept;      \
  HopResult hop_tbq(const CodecParams& params, const HopJob& job) noexcept;

namespace gradlane::scalar {
GRADLANE_SELECTIONS
}
namespace gradlane::avx2 {
GRADLANE_SELECTIONS
}
namespace gradlane::avx512 {
GRADLANE_SELECTIONS
}
namespace gradlane::neon {
GRADLANE_SELECTIONS
}
#undef GRADLANE_SELECTIONS
