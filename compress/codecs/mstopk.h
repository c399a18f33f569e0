// mstopk.h - codec mstopk: exactly the k largest elements ("On the Utility of Gradient Compression", MLSys 2022)
//
// The bin of the cut, which has the k-th largest element, begins at params.threshold. All elements above that bin are
// sent. If the bin has more elements than k allows, only those at positions [from, until) are sent. They are a run of
// neighbours in the bin, and its start is random. If `from` equals `until`, all elements from the threshold on are
// sent.
#pragma once

#include "compress/codecs/scan.h"
#include "compress/codecs/sparse.h"

namespace gradlane {
namespace {

struct MsTopK {
  static constexpr bool kSecond = false;

  MsTopK(const CodecParams& params, uint64_t position)
      : lower_(all(params.threshold)),
        upper_(all(params.from == params.until ? params.threshold : next_bin(params.threshold))),
        from_(all(within(params.from, position))),
        length_(all(within(params.until, position)) - from_) {}

  static GRADLANE_INLINE Floats x(const Floats& g, const Floats& residual, Floats&) { return g + residual; }
  GRADLANE_INLINE Mask takes(const Floats& x, size_t i) const {
    const Mask in_run = count_from(static_cast<uint32_t>(i)) - from_ < length_;
    return (in_run | !(abs(x) < upper_)) & !(abs(x) < lower_);
  }

  // The first pass, or the first two, make the histogram. After that, params.from and params.until are numbers of
  // elements in the bin of the cut. The last pass finds the positions of these elements.
  static void see(const CodecParams& params, TensorScan& scan, const ScanJob& job) {
    if (scan.pass == 0) set_mark(scan);
    if (scan.pass < 2) return see_magnitudes(params, scan, job, 0, x);
    const uint64_t end = scan.values + job.floats;
    if (end <= scan.next) return;
    const size_t first = scan.next > scan.values ? scan.next - scan.values : 0;
    const Floats lower = all(params.threshold), upper = all(next_bin(params.threshold));
    each_x(job, first, job.floats, x, [&](size_t i, size_t, const Floats& v) GRADLANE_INLINE_LAMBDA {
      const uint32_t bits = mask_bits((abs(v) < upper) & !(abs(v) < lower));
      see_run(params, scan, job.position + i, bits);
    });
    if (scan.chosen >= params.until) {
      scan.next = kNothing;
    } else if (scan.chosen > params.from) {
      go_to(params, scan, params.until - 1, end);
    }
  }

 private:
  // Converts a position in the tensor to a place in the record that begins at `position`. A position before the record
  // becomes 0, one after it becomes kRecordFloats.
  static uint32_t within(uint64_t place, uint64_t position) {
    return place < position ? 0 : static_cast<uint32_t>(smaller(place - position, kRecordFloats));
  }

  Floats lower_;
  Floats upper_;
  Words from_;
  Words length_;
};

}  // namespace
}  // namespace gradlane
