// terngrad.h - selection of codec terngrad: -s, 0 or s at random (Wen et al., NeurIPS 2017)
//
// The expected value of a contribution is the float, clipped to CLIP standard deviations. The step s is the least power
// of two that no clipped float of any rank exceeds.
#pragma once

#include "compress/codecs/random_unit.h"

namespace gradlane {
namespace {

class TernGrad {
 public:
  explicit TernGrad(const CodecParams& p)
      : random_(p.own_seed), steps_per_one_(all(p.steps_per_one)), clip_(all(p.threshold)) {}

  // Returns which of sixteen floats are contributed; `size` has their magnitudes.
  GRADLANE_INLINE Mask operator()(const Floats& size, uint64_t position) const {
    return to_unit_interval(random_.upper(position)) < lower(size, clip_) * steps_per_one_;
  }

 private:
  Random random_;
  Floats steps_per_one_, clip_;
};

}  // namespace
}  // namespace gradlane
