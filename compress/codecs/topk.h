// topk.h - codecs topk and graddrop: the elements, about k, whose magnitude reaches a threshold
#pragma once

#include "compress/codecs/scan.h"
#include "compress/codecs/sparse.h"

namespace gradlane {
namespace {

struct TopK {
  static constexpr bool kSecond = false;

  TopK(const CodecParams& params, uint64_t) : threshold_(all(params.threshold)) {}

  static GRADLANE_INLINE Floats x(const Floats& g, const Floats& residual, Floats&) { return g + residual; }
  GRADLANE_INLINE Mask takes(const Floats& x, size_t) const { return !(abs(x) < threshold_); }

  static void see(const CodecParams& params, TensorScan& scan, const ScanJob& job) {
    see_magnitudes(params, scan, job, 0, x);
  }

 private:
  Floats threshold_;
};

}  // namespace
}  // namespace gradlane
