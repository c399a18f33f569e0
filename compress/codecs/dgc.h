// dgc.h - codec dgc: velocities that add up and reach a threshold (Deep Gradient Compression, ICLR 2018)
//
// Each operation computes u = m u + gain g and v += u, and sends v where it reaches the threshold. Where v is sent, u
// becomes 0, and v becomes 0 or the rounding error. The first state array is v, the second one u.
#pragma once

#include "compress/codecs/scan.h"
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

  // The first pass computes the gradient's norm if it is to be clipped. Later passes count magnitudes.
  static void see(const CodecParams& params, TensorScan& scan, const ScanJob& job) {
    if (scan.pass == 0) {
      if (params.arguments.bits != 0) return see_squares(scan, job);
      scan.next = kNothing;
      return;
    }
    const Dgc codec(params, 0);
    see_magnitudes(params, scan, job, 1,
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
