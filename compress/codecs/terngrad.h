// terngrad.h - selection of codec terngrad: -s, 0 or s by chance, so that the mean is the float, clipped to what s is
// made of (Wen et al., NeurIPS 2017)
#pragma once

#include "compress/codecs/chance.h"

namespace gradlane {
namespace {

class TernGrad {
 public:
  explicit TernGrad(const CodecParams& p)
      : random_(p.own_seed), steps_per_one_(all(p.steps_per_one)), clip_(all(p.threshold)) {}

  // Which of sixteen floats, of these sizes, are contributed.
  GRADLANE_INLINE Mask operator()(const Floats& size, uint64_t position) const {
    return between(random_.upper(position)) < lower(size, clip_) * steps_per_one_;
  }

 private:
  Random random_;
  Floats steps_per_one_, clip_;
};

}  // namespace
}  // namespace gradlane
