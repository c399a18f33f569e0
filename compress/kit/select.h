// select.h - selection of about the k largest magnitudes without sorting: a histogram by exponent and leading mantissa
// bits, and the cut in it (kernels, and the rows of codecs)
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <bit>
#include <iterator>

#include "compress/kernels.h"

namespace gradlane {
namespace {

// The bin of a magnitude is its bits, shifted right by this number: 8 bits of the exponent and 4 of the mantissa
// remain.
constexpr int kBinShift = 19;
static_assert(TensorScan::kCounts == size_t{1} << (31 - kBinShift));

constexpr uint32_t kInfinite = 0x7f800000;  // bits of Inf; magnitudes below are finite

// Returns the least magnitude in a bin.
constexpr float bin_from(uint32_t bin) { return std::bit_cast<float>(bin << kBinShift); }

inline float next_bin(float from) { return std::bit_cast<float>(std::bit_cast<uint32_t>(from) + (1U << kBinShift)); }

// The cut is the bin that has the k-th largest magnitude. `above` counts magnitudes in the bins above it, which are
// fewer than k. `inside` counts those in the bin.
struct Cut {
  uint32_t bin = 0;
  uint64_t above = 0;
  uint64_t inside = 0;
};

// Finds the cut. All counts in bins above that of `largest` must be 0.
inline Cut cut_at(const uint32_t (&counts)[TensorScan::kCounts], uint64_t k, float largest) {
  const uint32_t top = std::bit_cast<uint32_t>(largest) >> kBinShift;
  Cut cut{top, 0, counts[top]};
  while (cut.bin != 0 && cut.above + cut.inside < k) {
    cut.above += cut.inside;
    cut.inside = counts[--cut.bin];
  }
  return cut;
}

// Returns a threshold that about k magnitudes reach. It assumes that the magnitudes in a bin are spread evenly, up to
// the largest of all.
inline float threshold_at(const uint32_t (&counts)[TensorScan::kCounts], uint64_t k, float largest) {
  const Cut cut = cut_at(counts, k, largest);
  if (cut.bin == 0 || cut.inside == 0) return bin_from(cut.bin);
  const uint32_t from = cut.bin << kBinShift;
  const uint64_t past = std::bit_cast<uint32_t>(largest) - from;
  const uint64_t width = past < (1U << kBinShift) ? past : 1U << kBinShift;
  const uint64_t wanted = k - cut.above < cut.inside ? k - cut.above : cut.inside;
  return std::bit_cast<float>(from + static_cast<uint32_t>((cut.inside - wanted) * width / cut.inside));
}

// Returns how many of the scanned values are to be sent, at least one.
inline uint64_t wanted_of(const CodecParams& params, const TensorScan& scan) {
  return (scan.finite * params.arguments.rate + 500'000) / 1'000'000 | (scan.finite * params.arguments.rate < 500'000);
}

// While a pass counts magnitudes, TensorScan::chosen is the bin of the bar. The counts may leave out magnitudes below
// the bar. kKnown in its place says that the threshold is known, and that nothing is counted any more.
constexpr uint64_t kKnown = ~uint64_t{0};

inline void raise_bar(const CodecParams& params, TensorScan& scan) {
  constexpr uint64_t kEnough = 4096;
  if (scan.finite < kEnough) return;
  const uint64_t wanted = wanted_of(params, scan);
  const uint64_t bar = cut_at(scan.counts, wanted + wanted / 4 + 64, scan.largest).bin;
  if (bar > scan.chosen) scan.chosen = bar;
}

// Value of TensorScan::next when the rest of a pass may be skipped.
constexpr uint64_t kNothing = ~uint64_t{0};

// Adds a mark if N values have been scanned after the previous one. A mark has the counts of the bins in which the cut
// may be. If there are kMarks marks already, every other one is dropped, and N doubles. With marks, a later pass can
// find elements of a bin without scanning all values.
inline void set_mark(TensorScan& scan) {
  constexpr uint64_t kOften = 32768;
  if (scan.marks == TensorScan::kMarks) {
    scan.marks /= 2;
    for (size_t i = 0; i < scan.marks; ++i) scan.mark[i] = scan.mark[2 * i];
  }
  const uint64_t often = scan.marks < 2 ? kOften : scan.mark[1].values - scan.mark[0].values;
  if (scan.marks != 0 && scan.values < scan.mark[scan.marks - 1].values + often) return;
  TensorScan::Mark& mark = scan.mark[scan.marks++];
  mark.values = scan.values;
  mark.bin = static_cast<uint32_t>(scan.chosen);
  for (size_t i = 0; i < std::size(mark.counts); ++i) mark.counts[i] = scan.counts[mark.bin + i];
}

// Sets TensorScan::next to the last mark that is not before `values`, and not after element `number` of the threshold's
// bin. TensorScan::chosen becomes the number of that bin's first element after the mark. Does nothing if there is no
// such mark.
inline void go_to(const CodecParams& params, TensorScan& scan, uint64_t number, uint64_t values) {
  const uint32_t bin = std::bit_cast<uint32_t>(params.threshold) >> kBinShift;
  for (size_t i = 0; i < scan.marks; ++i) {
    const TensorScan::Mark& mark = scan.mark[i];
    const uint32_t which = bin - mark.bin;  // never negative, as the bar only rises
    if (mark.values < values || which >= std::size(mark.counts) || mark.counts[which] > number) continue;
    scan.next = mark.values;
    scan.chosen = mark.counts[which];
  }
}

// Indices in TensorScan::counts at which the last pass of mstopk keeps the positions where its run begins and ends.
// Each takes two entries.
constexpr size_t kRunFrom = 0;
constexpr size_t kRunUntil = 2;
inline void set_place(TensorScan& scan, size_t at, uint64_t place) {
  scan.counts[at] = static_cast<uint32_t>(place);
  scan.counts[at + 1] = static_cast<uint32_t>(place >> 32);
}
inline uint64_t place_at(const TensorScan& scan, size_t at) {
  return scan.counts[at] | static_cast<uint64_t>(scan.counts[at + 1]) << 32;
}

}  // namespace
}  // namespace gradlane
