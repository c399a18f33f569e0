// qsgd.h - codec qsgd: the nearest of 2^b values that are evenly spread from a bucket's least to its largest value
//
// (This is CGX's max-min quantizer, which HiPress ships as TernGrad. Theirs can round at random; this one rounds to
// nearest and leaves a residual.)
#pragma once

#include "compress/codecs/chunks.h"

namespace gradlane {
namespace {

// The code computes with halves of the values, because the difference of the largest and the least value may exceed the
// largest float.
struct Qsgd {
  static constexpr size_t kHeads = 2;  // half of the least value, half of the step
  static unsigned bits(const CodecParams& params) { return params.arguments.bits; }

  struct Measure {
    GRADLANE_INLINE void see(const Floats& x, size_t count) {
      least = lower(least, count == kLanes ? x : choose(first_lanes(count), x, least));
      most = upper(most, count == kLanes ? x : choose(first_lanes(count), x, most));
    }
    void heads(const CodecParams& params, size_t, float* heads) const {
      heads[0] = 0.5F * lowest_of(least) + 0.0F;  // never -0
      heads[1] = step_of(0.5F * highest_of(most) - heads[0], static_cast<float>((1U << bits(params)) - 1));
    }

    Floats least = all(__builtin_inff());
    Floats most = all(-__builtin_inff());
  };

  Qsgd(const CodecParams&, const float* heads)
      : least(all(heads[0])), step(all(heads[1])), per_one(all(per_step(heads[1]))) {}

  GRADLANE_INLINE Words code(const Floats& x) const { return nearest_byte((x * all(0.5F) - least) * per_one); }
  GRADLANE_INLINE Floats value(const Words& code) const {
    const Floats half = to_floats(code) * step + least;
    return half + half;
  }

  Floats least;
  Floats step;
  Floats per_one;
};

}  // namespace
}  // namespace gradlane
