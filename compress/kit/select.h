// select.h - select-k without sorting: a histogram of magnitudes, by exponent and leading mantissa bits, and where it
// is cut so that about k of them are above (kernels, and the rows of codecs)
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include <bit>
#include <iterator>

#include "compress/kernels.h"

namespace gradlane {
namespace {

// The bin of a magnitude is what is left of its bits: 8 of the exponent, 4 of the mantissa.
constexpr int kBinShift = 19;
static_assert(Look::kCounts == size_t{1} << (31 - kBinShift));

constexpr uint32_t kInfinite = 0x7f800000;  // bits from which on a magnitude is none of a number

// From this magnitude on, they are in this bin or in one above.
constexpr float bin_from(uint32_t bin) { return std::bit_cast<float>(bin << kBinShift); }

inline float next_bin(float from) { return std::bit_cast<float>(std::bit_cast<uint32_t>(from) + (1U << kBinShift)); }

// The bin with the k-th largest: `above` are in bins above it, fewer than k, and `inside` in itself.
struct Cut {
  uint32_t bin = 0;
  uint64_t above = 0;
  uint64_t inside = 0;
};

// No count above that of the largest is anything but 0.
inline Cut cut_at(const uint32_t (&counts)[Look::kCounts], uint64_t k, float largest) {
  const uint32_t top = std::bit_cast<uint32_t>(largest) >> kBinShift;
  Cut cut{top, 0, counts[top]};
  while (cut.bin != 0 && cut.above + cut.inside < k) {
    cut.above += cut.inside;
    cut.inside = counts[--cut.bin];
  }
  return cut;
}

// A magnitude that about k have or exceed, if those of a bin are spread evenly over it, up to the largest of all.
inline float threshold_at(const uint32_t (&counts)[Look::kCounts], uint64_t k, float largest) {
  const Cut cut = cut_at(counts, k, largest);
  if (cut.bin == 0 || cut.inside == 0) return bin_from(cut.bin);
  const uint32_t from = cut.bin << kBinShift;
  const uint64_t past = std::bit_cast<uint32_t>(largest) - from;
  const uint64_t width = past < (1U << kBinShift) ? past : 1U << kBinShift;
  const uint64_t wanted = k - cut.above < cut.inside ? k - cut.above : cut.inside;
  return std::bit_cast<float>(from + static_cast<uint32_t>((cut.inside - wanted) * width / cut.inside));
}

// How many of those looked at are to be sent: one at least.
inline uint64_t wanted_of(const CodecParams& params, const Look& look) {
  return (look.finite * params.arguments.rate + 500'000) / 1'000'000 | (look.finite * params.arguments.rate < 500'000);
}

// Look::chosen while magnitudes are counted: the bin of the bar, below which some may not be; or that all is known.
constexpr uint64_t kKnown = ~uint64_t{0};

inline void raise_bar(const CodecParams& params, Look& look) {
  constexpr uint64_t kEnough = 4096;
  if (look.finite < kEnough) return;
  const uint64_t wanted = wanted_of(params, look);
  const uint64_t bar = cut_at(look.counts, wanted + wanted / 4 + 64, look.largest).bin;
  if (bar > look.chosen) look.chosen = bar;
}

// Look::next where all has been seen that matters.
constexpr uint64_t kNothing = ~uint64_t{0};

// Keeps what has been counted up to here, of the bins in which the cut may be: every so many values, and half as often
// where that becomes too much. Which ones of a bin's elements are where is known then without looking at all of them.
inline void set_mark(Look& look) {
  constexpr uint64_t kOften = 32768;
  if (look.marks == Look::kMarks) {
    look.marks /= 2;
    for (size_t i = 0; i < look.marks; ++i) look.mark[i] = look.mark[2 * i];
  }
  const uint64_t often = look.marks < 2 ? kOften : look.mark[1].values - look.mark[0].values;
  if (look.marks != 0 && look.values < look.mark[look.marks - 1].values + often) return;
  Look::Mark& mark = look.mark[look.marks++];
  mark.values = look.values;
  mark.bin = static_cast<uint32_t>(look.chosen);
  for (size_t i = 0; i < std::size(mark.counts); ++i) mark.counts[i] = look.counts[mark.bin + i];
}

// Skips all up to the last mark behind `values` that number `number` of the elements in the threshold's bin is behind.
// Look::chosen is the number of the first one from there on.
inline void go_to(const CodecParams& params, Look& look, uint64_t number, uint64_t values) {
  const uint32_t bin = std::bit_cast<uint32_t>(params.threshold) >> kBinShift;
  for (size_t i = 0; i < look.marks; ++i) {
    const Look::Mark& mark = look.mark[i];
    const uint32_t which = bin - mark.bin;  // never below it, as the bar only rises
    if (mark.values < values || which >= std::size(mark.counts) || mark.counts[which] > number) continue;
    look.next = mark.values;
    look.chosen = mark.counts[which];
  }
}

// Two positions that a second pass finds, in the counts of the first one.
constexpr size_t kRunFrom = 0;
constexpr size_t kRunUntil = 2;
inline void set_place(Look& look, size_t at, uint64_t place) {
  look.counts[at] = static_cast<uint32_t>(place);
  look.counts[at + 1] = static_cast<uint32_t>(place >> 32);
}
inline uint64_t place_at(const Look& look, size_t at) {
  return look.counts[at] | static_cast<uint64_t>(look.counts[at + 1]) << 32;
}

}  // namespace
}  // namespace gradlane
