// look.h - passes over a contribution that codecs share; included by the kernels of every instruction set that are made
// with the kit
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include "compress/kit/operators.h"
#include "compress/kit/select.h"

namespace gradlane {
namespace {

// f(i, count, x) for floats `first` to `end` of a job, where x(g, residual, second) is what there is to send of them.
template <class X, class F>
GRADLANE_INLINE void each_x(const LookJob& job, size_t first, size_t end, X x, F f) {
  const bool kept = job.residual != nullptr, two = job.second != nullptr;
  each(end - first, [&](size_t at, size_t count) GRADLANE_INLINE_LAMBDA {
    const size_t i = first + at;
    const Floats zero = all(0.0F);
    const Floats residual = kept ? load(job.residual + i, count) : zero;
    Floats second = two ? load(job.second + i, count) : zero;
    f(i, count, x(load(job.in + i, count), residual, second));
  });
}

// Counts magnitudes, given as bits. Returns how many of them are finite.
inline uint64_t count_bits(Look& look, const uint32_t* bits, size_t count) {
  uint32_t largest = std::bit_cast<uint32_t>(look.largest);
  uint64_t finite = 0;
  for (size_t i = 0; i < count; ++i) {
    if (bits[i] >= kInfinite) [[unlikely]]
      continue;
    ++finite;
    ++look.counts[bits[i] >> kBinShift];
    largest = bits[i] > largest ? bits[i] : largest;
  }
  look.largest = std::bit_cast<float>(largest);
  return finite;
}

// The histogram of what is finite, and the largest. In pass `first` only of what is not below a bar, which rises with
// each job, and more often in the first one: more than are wanted of all that has been seen are above it. settle()
// finds out whether that was enough in the end; if it was not, the next pass counts all.
template <class X>
GRADLANE_INLINE void see_magnitudes(const CodecParams& params, Look& look, const LookJob& job, unsigned first, X x) {
  constexpr size_t kRun = 2048;
  uint32_t above[kRun + kLanes];  // bits of the magnitudes that are to be counted
  if (look.chosen == kKnown) return;
  for (size_t done = 0; done < job.floats; done += kRun) {
    const size_t end = smaller(job.floats, done + kRun);
    if (look.pass == first && (done == 0 || look.values == 0)) raise_bar(params, look);
    const Floats bar = all(bin_from(static_cast<uint32_t>(look.chosen)));
    size_t some = 0;
    each_x(job, done, end, x, [&](size_t, size_t count, const Floats& v) GRADLANE_INLINE_LAMBDA {
      const Floats size = abs(v);
      Mask seen = !(size < bar);
      if (count < kLanes) seen = seen & first_lanes(count);
      // One register is compressed in less time than a branch takes that nobody can foresee.
      if (kParts == 1 || any(seen)) some += filter(seen, bits_of(size), above + some);
    });
    look.finite += end - done - some + count_bits(look, above, some);
  }
}

// The sum of squares of what is finite, one by one: squares of floats may be more than a float holds.
inline double large_squares(const float* in, size_t floats) {
  double sum = 0;
  for (size_t i = 0; i < floats; ++i) {
    float g;  // may lie at an odd address
    std::memcpy(&g, in + i, sizeof g);
    if (__builtin_fabsf(g) < __builtin_inff()) sum += static_cast<double>(g) * static_cast<double>(g);
  }
  return sum;
}

// The same, of most floats. Partial sums are as long as that of a run of one length.
inline void see_squares(Look& look, const LookJob& job) {
  constexpr size_t kRun = 256;
  for (size_t done = 0; done < job.floats; done += kRun) {
    const size_t floats = smaller(job.floats - done, kRun);
    const Floats sums = reduce(
        all(0.0F), floats,
        [](const Floats& sum, const Floats& g) GRADLANE_INLINE_LAMBDA { return sum + only(is_finite(g), g * g); },
        job.in + done);
    const float sum = total(sums);
    look.square += sum < __builtin_inff() ? static_cast<double>(sum) : large_squares(job.in + done, floats);
  }
}

// Of sixteen floats from `position` on, those of one bin: their numbers are look.chosen and the next ones. Where the
// run params.from to params.until of these numbers begins and ends goes to the counts, which nobody needs any more.
GRADLANE_INLINE void see_run(const CodecParams& params, Look& look, uint64_t position, uint32_t bits) {
  if (bits == 0) return;
  const uint64_t first = look.chosen;
  look.chosen += static_cast<uint64_t>(__builtin_popcount(bits));
  const auto place_of = [&](uint64_t number) {
    uint32_t left = bits;
    for (; number != first; --number) left &= left - 1;
    return position + static_cast<uint64_t>(__builtin_ctz(left));
  };
  const uint64_t last = params.until - 1;
  if (first <= params.from && params.from < look.chosen) set_place(look, kRunFrom, place_of(params.from));
  if (first <= last && last < look.chosen) set_place(look, kRunUntil, place_of(last) + 1);
}

}  // namespace
}  // namespace gradlane
