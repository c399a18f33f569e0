// scan.h - scans of a contribution that codecs share; included by the kernels of every instruction set that are made
// with the kit
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/kit/operators.h"
#include "compress/kit/select.h"

namespace gradlane {
namespace {

// Calls f(i, count, v) for floats `first` to `end` of a job. v is x(g, residual, second), the values that could be
// sent.
template <class X, class F>
GRADLANE_INLINE void each_x(const ScanJob& job, size_t first, size_t end, X x, F f) {
  const bool kept = job.residual != nullptr, two = job.second != nullptr;
  each(end - first, [&](size_t at, size_t count) GRADLANE_INLINE_LAMBDA {
    const size_t i = first + at;
    const Floats zero = all(0.0F);
    const Floats residual = kept ? load(job.residual + i, count) : zero;
    Floats second = two ? load(job.second + i, count) : zero;
    f(i, count, x(load(job.in + i, count), residual, second));
  });
}

// Counts magnitudes, given as bits, in the histogram. Returns how many of them are finite.
inline uint64_t count_bits(TensorScan& scan, const uint32_t* bits, size_t count) {
  uint32_t largest = std::bit_cast<uint32_t>(scan.largest);
  uint64_t finite = 0;
  for (size_t i = 0; i < count; ++i) {
    if (bits[i] >= kInfinite) [[unlikely]]
      continue;
    ++finite;
    ++scan.counts[bits[i] >> kBinShift];
    largest = bits[i] > largest ? bits[i] : largest;
  }
  scan.largest = std::bit_cast<float>(largest);
  return finite;
}

// Counts finite magnitudes in the histogram, and finds the largest. Pass `first` counts only magnitudes that are not
// below a bar. The bar may rise at each job, and more often in the first job. It stays so low that more of the scanned
// values are above it than are to be sent. finish_scan() checks after the pass whether the counts suffice. If not, the
// next pass counts all values.
template <class X>
GRADLANE_INLINE void see_magnitudes(const CodecParams& params, TensorScan& scan, const ScanJob& job, unsigned first,
                                    X x) {
  constexpr size_t kRun = 2048;
  uint32_t above[kRun + kLanes];  // bits of the magnitudes that are to be counted
  if (scan.chosen == kKnown) return;
  for (size_t done = 0; done < job.floats; done += kRun) {
    const size_t end = smaller(job.floats, done + kRun);
    if (scan.pass == first && (done == 0 || scan.values == 0)) raise_bar(params, scan);
    const Floats bar = all(bin_from(static_cast<uint32_t>(scan.chosen)));
    size_t some = 0;
    each_x(job, done, end, x, [&](size_t, size_t count, const Floats& v) GRADLANE_INLINE_LAMBDA {
      const Floats size = abs(v);
      Mask seen = !(size < bar);
      if (count < kLanes) seen = seen & first_lanes(count);
      // Compressing one register takes less time than a branch that is often mispredicted.
      if (kParts == 1 || any(seen)) some += filter(seen, bits_of(size), above + some);
    });
    scan.finite += end - done - some + count_bits(scan, above, some);
  }
}

// Adds the squares of finite floats in double, one by one: the square of a float may exceed the range of floats.
inline double large_squares(const float* in, size_t floats) {
  double sum = 0;
  for (size_t i = 0; i < floats; ++i) {
    float g;  // may lie at an odd address
    std::memcpy(&g, in + i, sizeof g);
    if (__builtin_fabsf(g) < __builtin_inff()) sum += static_cast<double>(g) * static_cast<double>(g);
  }
  return sum;
}

// Adds the squares of finite floats with vectors; large_squares() replaces sums that overflow. Partial sums are over
// runs of kRun floats.
inline void see_squares(TensorScan& scan, const ScanJob& job) {
  constexpr size_t kRun = 256;
  for (size_t done = 0; done < job.floats; done += kRun) {
    const size_t floats = smaller(job.floats - done, kRun);
    const Floats sums = reduce(
        all(0.0F), floats,
        [](const Floats& sum, const Floats& g) GRADLANE_INLINE_LAMBDA { return sum + only(is_finite(g), g * g); },
        job.in + done);
    const float sum = total(sums);
    scan.square += sum < __builtin_inff() ? static_cast<double>(sum) : large_squares(job.in + done, floats);
  }
}

// Counts the elements of the cut's bin among sixteen floats from `position` on. `bits` has a bit for each of these
// elements. They get the numbers scan.chosen, scan.chosen + 1, ... The run of numbers [params.from, params.until) is to
// be sent. If it begins or ends among them, the position is stored in scan.counts, which no longer has to be a
// histogram.
GRADLANE_INLINE void see_run(const CodecParams& params, TensorScan& scan, uint64_t position, uint32_t bits) {
  if (bits == 0) return;
  const uint64_t first = scan.chosen;
  scan.chosen += static_cast<uint64_t>(__builtin_popcount(bits));
  const auto place_of = [&](uint64_t number) {
    uint32_t left = bits;
    for (; number != first; --number) left &= left - 1;
    return position + static_cast<uint64_t>(__builtin_ctz(left));
  };
  const uint64_t last = params.until - 1;
  if (first <= params.from && params.from < scan.chosen) set_place(scan, kRunFrom, place_of(params.from));
  if (first <= last && last < scan.chosen) set_place(scan, kRunUntil, place_of(last) + 1);
}

}  // namespace
}  // namespace gradlane
