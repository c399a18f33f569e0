// selection.h - what ranks contribute to blocks in bit planes where that is a stage of its own, declared for every
// instruction set (selections.cc of each of them)
//
// Plain data and nothing else, as kernels.h.
#pragma once

#include "compress/kernels.h"

namespace gradlane {

// A run of this rank's own floats.
struct SelectJob {
  const float* in;
  size_t floats;
  uint64_t position;  // of in[0] in the whole tensor
  float* out;         // what is contributed: multiples of the step, Inf and NaN
};

}  // namespace gradlane

#define GRADLANE_SELECTIONS                                                               \
  void look_at(const CodecParams&, Look& look, const LookJob& job) noexcept;              \
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
