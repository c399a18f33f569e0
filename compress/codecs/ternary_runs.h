// ternary_runs.h - encoding of runs of groups of -1, 0 and 1 as bit planes, and their addition to a block's groups;
// included by the translation units of selections
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <bit>
#include <utility>

#include "compress/kit/vectors.h"
#include "compress/plane_passes.h"

namespace gradlane {
namespace {

// Calls f(0), ..., f(kCount - 1), without a loop.
template <size_t kCount, class F>
GRADLANE_INLINE void unrolled(F f) {
  [&]<size_t... j>(std::index_sequence<j...>) GRADLANE_INLINE_LAMBDA { (f(j), ...); }
  (std::make_index_sequence<kCount>());
}

struct FloatPair {
  Floats low, high;
};

// 32 floats, and masks of those whose signs are contributed.
struct TernaryGroup {
  FloatPair x;
  Mask low, high;
};

// A group in two's complement: plane 0, and the sign, which all other planes repeat.
struct TernaryPlanes {
  uint32_t low, sign;

  GRADLANE_INLINE explicit TernaryPlanes(const TernaryGroup& group) {
    const auto both = [](const Mask& low_half, const Mask& high_half)
                          GRADLANE_INLINE_LAMBDA { return mask_bits(low_half) | mask_bits(high_half) << kLanes; };
    const Floats zero = all(0.0F);
    low = both(group.low, group.high);
    sign = both(group.low & (group.x.low < zero), group.high & (group.x.high < zero));
  }
};

// Writes a group. Returns false and writes nothing if two planes do not fit.
GRADLANE_INLINE bool put_ternary(TernaryPlanes planes, PlaneSink& sink, uint8_t* tags, size_t group) {
  if (sink.room() < static_cast<ptrdiff_t>(2 * kPlaneBytes)) [[unlikely]]
    return false;
  const auto width = static_cast<unsigned>(planes.low != 0) + static_cast<unsigned>(planes.low != planes.sign);
  store_plane(sink.at, planes.low);
  store_plane(sink.at + kPlaneBytes, planes.sign);
  sink.at += width * kPlaneBytes;
  set_plane_tag(tags, group, width);
  return true;
}

// Adds a group to one of fewer than kPlanes planes, and writes the sum. Returns false and writes nothing if kPlanes
// planes do not fit.
template <size_t kPlanes>
GRADLANE_INLINE bool put_sum(const uint8_t* at, unsigned width, TernaryPlanes other, PlaneSink& sink, uint8_t* tags,
                             size_t group) {
  static constexpr uint8_t kZeros[kPlaneBytes] = {};
  if (sink.room() < static_cast<ptrdiff_t>(kPlanes * kPlaneBytes)) return false;
  const uint8_t* const from = width == 0 ? kZeros : at;
  const size_t last = width == 0 ? 0 : width - 1;
  uint32_t planes[kPlanes];
  uint32_t carry = 0;
  unrolled<kPlanes>([&](size_t j) GRADLANE_INLINE_LAMBDA {
    const uint32_t a = load_plane(from + smaller(j, last) * kPlaneBytes);
    const uint32_t b = j == 0 ? other.low : other.sign;
    planes[j] = a ^ b ^ carry;
    carry = (a & b) | (carry & (a ^ b));
  });
  // Planes that repeat the sign do not count.
  unsigned steps = planes[0] != 0 ? 1 : 0;
  unrolled<kPlanes - 1>(
      [&](size_t j) GRADLANE_INLINE_LAMBDA { steps |= static_cast<unsigned>(planes[j + 1] != planes[j]) << (j + 1); });
  const auto sum_width = static_cast<unsigned>(std::countl_zero(2 * steps + 1) ^ 31);  // bit_width() without a branch
  unrolled<kPlanes>([&](size_t j) GRADLANE_INLINE_LAMBDA { store_plane(sink.at + j * kPlaneBytes, planes[j]); });
  sink.at += sum_width * kPlaneBytes;
  set_plane_tag(tags, group, sum_width);
  return true;
}

// ---- Runs

template <class Selection>
struct TernaryRuns {
  static GRADLANE_INLINE size_t encode(const Selection& selection, const PlaneJob& from, size_t group, PlaneSink& to,
                                       uint8_t* tags) {
    const PlaneJob job = from;  // copies, so that the bytes that are written cannot alias them
    const Selection select = selection;
    PlaneSink sink = to;
    for (const size_t full = job.full_groups(); group < full; ++group) {
      const TernaryGroup one = select.take(job, group);
      if (!select.fits(one) || !put_ternary(TernaryPlanes(one), sink, tags, group)) [[unlikely]]
        break;
      if constexpr (Selection::kFeedback) select.store_residual(job, group, select.left(one));
    }
    to = sink;
    return group;
  }

  static GRADLANE_INLINE size_t hop(const Selection& selection, const PlaneJob& from, PlaneInput& input, size_t group,
                                    PlaneSink& to, uint8_t* tags) {
    const PlaneJob job = from;  // copies, for the same reason as in encode()
    const Selection select = selection;
    PlaneSink sink = to;
    PlaneInput in = input;
    for (const size_t full = job.full_groups(); group < full; ++group) {
      const unsigned width = in.tag(group);
      const TernaryGroup one = select.take(job, group);
      const TernaryPlanes planes(one);
      if (!select.fits(one)) [[unlikely]]
        break;
      const bool put = width < 4    ? put_sum<4>(in.at, width, planes, sink, tags, group)
                       : width < 8  ? put_sum<8>(in.at, width, planes, sink, tags, group)
                       : width < 14 ? put_sum<14>(in.at, width, planes, sink, tags, group)
                                    : false;
      if (!put) break;
      in.at += width * kPlaneBytes;
      if constexpr (Selection::kFeedback) select.store_residual(job, group, select.left(one));
    }
    to = sink;
    input = in;
    return group;
  }
};

}  // namespace
}  // namespace gradlane
