// plane_group.h - conversion of one group of any kind to bit planes and back (included by neon.cc only)
#pragma once

#include "compress/neon/plane_values.h"
#include "compress/plane_group.h"

namespace gradlane {
namespace {

// The functions of AnyGroup (compress/plane_group.h), in vectors.
struct PlaneGroup {
  static GRADLANE_INLINE void round(const CodecParams& p, const float* x, float* out) {
    store_group(out, rounded(p, load_group(x)));
  }

  static GRADLANE_INLINE void add_to(float* a, const float* b) {
    store_group(a, map([](const Floats& v, const Floats& w) GRADLANE_INLINE_LAMBDA { return gradlane::add(v, w); },
                       load_group(a), load_group(b)));
  }

  static GRADLANE_INLINE void subtract(const float* x, const float* rounded, float* out) {
    const auto rest = [](const Floats& v, const Floats& r) GRADLANE_INLINE_LAMBDA {
      const Floats left = v - r + all(0.0F);  // `left` is NaN if v is Inf or NaN, and never -0
      return only(left == left, left);
    };
    store_group(out, map(rest, load_group(x), load_group(rounded)));
  }

  static GRADLANE_INLINE void code(const CodecParams& p, const float* x, size_t count, CodedGroup& out) {
    const Group values = load_group(x);
    const Group near = rounded(p, values);
    store_group(out.rounded, near);
    // Masks of the floats that fit a word. Floats from 2^23 steps on are far outside, and comparisons with NaN are
    // false.
    const auto fits = [&p](const Floats& v)
                          GRADLANE_INLINE_LAMBDA { return (v >= all(-32768 * p.step)) & (v <= all(32767 * p.step)); };
    const Mask low = fits(near.low), high = fits(near.high);
    const PlaneWords q = PlaneLattice(p).words({only(low, values.low), only(high, values.high)});
    for (size_t k = 0; k < 4; ++k) vst1q_s16(out.q + 8 * k, q.part[k]);
    out.escape = {width_of(q), ~(mask_bits(low) | mask_bits(high) << kLanes)};
    out.close(count);
  }

  static GRADLANE_INLINE void put(const CodedGroup& group, uint8_t* at, uint8_t* escapes) {
    const unsigned width = group.escape.width;
    PlaneWords q;
    for (size_t k = 0; k < 4; ++k) q.part[k] = vld1q_s16(group.q + 8 * k);
    store_some_planes(at, width < 8 ? width : 8, planes_of(half_bytes<false>(q)));
    if (width > 8) store_some_planes(at + 8 * kPlaneBytes, width - 8, planes_of(half_bytes<true>(q)));
    group.put_raw(at + width * kPlaneBytes, escapes);
  }

  static GRADLANE_INLINE void get(const CodecParams& p, Escape escape, const uint8_t* at, float* x) {
    uint8_t planes[kMostPlanes * kPlaneBytes] = {};
    std::memcpy(planes, at, escape.width * kPlaneBytes);
    store_group(x, PlaneLattice(p).floats(load_words(planes, escape.width)));
    get_raw(escape, at + escape.width * kPlaneBytes, x);
  }

 private:
  // Returns the nearest multiple of the step, or all bits of x unchanged from 2^23 steps on.
  static GRADLANE_INLINE Group rounded(const CodecParams& p, const Group& x) {
    return map([&p](const Floats& v) GRADLANE_INLINE_LAMBDA { return to_multiples(v, p.exact); }, x);
  }
};

}  // namespace
}  // namespace gradlane
