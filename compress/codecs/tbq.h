// tbq.h - selection of codec tbq: -T, 0 or T, by a threshold T; the residual keeps the rest (Strom, Interspeech 2015)
#pragma once

#include "compress/kit/operators.h"

namespace gradlane {
namespace {

class Tbq {
 public:
  explicit Tbq(const CodecParams& p) : step_(all(p.step)) {}

  // Returns which of sixteen floats are contributed; `size` has their magnitudes.
  GRADLANE_INLINE Mask operator()(const Floats& size, uint64_t) const { return size >= step_; }

 private:
  Floats step_;
};

}  // namespace
}  // namespace gradlane
