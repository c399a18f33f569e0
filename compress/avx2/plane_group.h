// plane_group.h - conversion of one group of any kind to bit planes and back (included by avx2.cc only)
#pragma once

#include "compress/avx2/plane_values.h"
#include "compress/plane_group.h"

namespace gradlane {
namespace {

// The functions of AnyGroup (compress/plane_group.h), eight floats at a time.
struct PlaneGroup {
  static GRADLANE_INLINE void round(const CodecParams& p, const float* x, float* out) {
    store_group(out, map(load_group(x), [&](__m256 v) GRADLANE_INLINE_LAMBDA { return rounded(p, v); }));
  }

  static GRADLANE_INLINE void add_to(float* a, const float* b) {
    store_group(a, canonical(add(load_group(a), load_group(b))));
  }

  static GRADLANE_INLINE void subtract(const float* x, const float* rounded, float* out) {
    store_group(out, map(load_group(x), load_group(rounded), [](__m256 v, __m256 r) GRADLANE_INLINE_LAMBDA {
                  // `rest` is NaN if v is Inf or NaN. It is never -0.
                  const __m256 rest = _mm256_add_ps(_mm256_sub_ps(v, r), _mm256_setzero_ps());
                  return _mm256_and_ps(rest, _mm256_cmp_ps(rest, rest, _CMP_ORD_Q));
                }));
  }

  static GRADLANE_INLINE void code(const CodecParams& p, const float* x, size_t count, CodedGroup& out) {
    const Floats values = load_split(x);
    const Floats all = map(values, [&](__m256 v) GRADLANE_INLINE_LAMBDA { return rounded(p, v); });
    store_split(out.rounded, all);
    // Masks of the floats that fit a word. Floats from 2^23 steps on are far outside, and comparisons with NaN are
    // false.
    const __m256 least = _mm256_set1_ps(-32768 * p.step);
    const __m256 most = _mm256_set1_ps(32767 * p.step);
    const Floats fits = map(all, [&](__m256 v) GRADLANE_INLINE_LAMBDA {
      return _mm256_and_ps(_mm256_cmp_ps(v, least, _CMP_GE_OQ), _mm256_cmp_ps(v, most, _CMP_LE_OQ));
    });
    const PlaneLattice lattice(p);
    const PlaneWords q = lattice.words(
        map(values, fits, [](__m256 v, __m256 mask) GRADLANE_INLINE_LAMBDA { return _mm256_and_ps(v, mask); }));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.q), q.low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.q + 16), q.high);
    const auto fitting = static_cast<uint32_t>(_mm256_movemask_epi8(narrow_words(pack_masks(fits))));
    out.escape = {width_of(q), ~fitting};
    out.close(count);
  }

  static GRADLANE_INLINE void put(const CodedGroup& group, uint8_t* at, uint8_t* escapes) {
    const unsigned width = group.escape.width;
    const PlaneWords q = {_mm256_load_si256(reinterpret_cast<const __m256i*>(group.q)),
                          _mm256_load_si256(reinterpret_cast<const __m256i*>(group.q + 16))};
    store_some_planes(at, width < 8 ? width : 8, planes_of(low_bytes(q)));
    if (width > 8) store_some_planes(at + 8 * kPlaneBytes, width - 8, planes_of(high_bytes(q)));
    group.put_raw(at + width * kPlaneBytes, escapes);
  }

  static GRADLANE_INLINE void get(const CodecParams& p, Escape escape, const uint8_t* at, float* x) {
    store_group(x, PlaneLattice(p).floats(load_words(at, escape.width)));
    get_raw(escape, at + escape.width * kPlaneBytes, x);
  }

 private:
  static GRADLANE_INLINE PlaneWords pack_masks(Floats x) {
    const auto pack = [](Floats16 v) GRADLANE_INLINE_LAMBDA {
      return _mm256_packs_epi32(_mm256_castps_si256(v.low), _mm256_castps_si256(v.high));
    };
    return {pack(x.low), pack(x.high)};
  }

  // Returns the nearest multiple of the step, or all bits of x unchanged from 2^23 steps on.
  static GRADLANE_INLINE __m256 rounded(const CodecParams& p, __m256 x) {
    const __m256 exact = _mm256_set1_ps(p.exact);
    const __m256 r = _mm256_or_ps(exact, _mm256_and_ps(x, _mm256_set1_ps(-0.0F)));
    const __m256 near = _mm256_sub_ps(_mm256_add_ps(x, r), r);
    return _mm256_blendv_ps(x, near, _mm256_cmp_ps(magnitude(x), exact, _CMP_LT_OQ));
  }
};

}  // namespace
}  // namespace gradlane
