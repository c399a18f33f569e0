// dgc.h - codec dgc: what reaches a threshold of a velocity that adds up (Deep Gradient Compression, ICLR 2018)
//
// u = m u + gain g and v += u; where v is sent, both start again from 0. The first state array is v, the second one u.
#pragma once

#include "compress/codecs/look.h"
#include "compress/codecs/sparse.h"

namespace gradlane {
namespace {

struct Dgc {
  static constexpr bool kSecond = true;

  Dgc(const CodecParams& params, uint64_t)
      : threshold_(all(params.threshold)), gain_(all(params.gain)), momentum_(all(params.scale)) {}

  GRADLANE_INLINE Floats x(const Floats& g, const Floats& residual, Floats& second) const {
    second = second * momentum_ + g * gain_;
    return residual + second;
  }
  GRADLANE_INLINE Mask takes(const Floats& x, size_t) const { return !(abs(x) < threshold_); }

  // First the gradient's norm, where it is clipped.
  static void see(const CodecParams& params, Look& look, const LookJob& job) {
    if (look.pass == 0) {
      if (params.arguments.bits != 0) return see_squares(look, job);
      look.next = kNothing;
      return;
    }
    const Dgc codec(params, 0);
    see_magnitudes(params, look, job, 1,
                   [&](const Floats& g, const Floats& residual, Floats& second)
                       GRADLANE_INLINE_LAMBDA { return codec.x(g, residual, second); });
  }

 private:
  Floats threshold_;
  Floats gain_;
  Floats momentum_;
};

}  // namespace
}  // namespace gradlane
