// moments.h - a scan that measures the magnitudes of a contribution's finite floats; included by define_selections.h
// and votes.h
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/kit/operators.h"

namespace gradlane {
namespace {

// Adds to the sums and the maximum in `scan`. Sums have sixteen lanes in every instruction set, so that all instruction
// sets get the same bits.
inline void scan_moments(TensorScan& scan, const ScanJob& job) {
  Floats largest = all(scan.largest);
  double magnitude[kLanes] = {}, square[kLanes] = {};
  uint64_t finite = 0;
  each(job.floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
    Floats x = load(job.in + i, count);
    if (job.residual != nullptr) x = x + load(job.residual + i, count);
    const Mask good = is_finite(x) & first_lanes(count);
    const Floats size = only(good, abs(x));
    finite += static_cast<uint64_t>(__builtin_popcount(mask_bits(good)));
    largest = larger(largest, size);
    float lane[kLanes];
    store(size, lane);
    for (size_t l = 0; l < kLanes; ++l) magnitude[l] += static_cast<double>(lane[l]);
    for (size_t l = 0; l < kLanes; ++l) square[l] += static_cast<double>(lane[l]) * static_cast<double>(lane[l]);
  });
  for (size_t half = kLanes / 2; half != 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) magnitude[l] += magnitude[l + half];
    for (size_t l = 0; l < half; ++l) square[l] += square[l + half];
  }
  scan.finite += finite;
  scan.largest = largest_of(largest);
  scan.magnitude += magnitude[0];
  scan.square += square[0];
}

}  // namespace
}  // namespace gradlane
