// plane_group.h - conversion of one group of any kind to bit planes and back (included by avx512.cc only)
#pragma once

#include "compress/avx512/plane_values.h"
#include "compress/plane_group.h"

namespace gradlane {
namespace {

// The functions of AnyGroup (compress/plane_group.h), 16 floats at a time. Here CodedGroup::q has the group's 16 bit
// planes, not one number for each float.
struct PlaneGroup {
  static GRADLANE_INLINE void round(const CodecParams& p, const float* x, float* out) {
    store_floats(out, rounded(p, load_floats(x)));
  }

  static GRADLANE_INLINE void add_to(float* a, const float* b) {
    store_floats(a, add_canonical(load_floats(a), load_floats(b)));
  }

  static GRADLANE_INLINE void subtract(const float* x, const float* rounded, float* out) {
    const Floats v = load_floats(x);
    const Floats r = load_floats(rounded);
    store_floats(out, {rest(v.low, r.low), rest(v.high, r.high)});
  }

  static GRADLANE_INLINE void code(const CodecParams& p, const float* x, size_t count, CodedGroup& out) {
    const Floats values = load_floats(x);
    const Floats all = rounded(p, values);
    store_floats(out.rounded, all);
    const __mmask16 low = fitting(p, all.low);
    const __mmask16 high = fitting(p, all.high);
    const Floats those = {_mm512_maskz_mov_ps(low, values.low), _mm512_maskz_mov_ps(high, values.high)};
    const __m512i planes = planes_of_values(permute(kValuesOfWords, PlaneLattice(p).words(those)));
    _mm512_storeu_si512(out.q, planes);
    out.escape = {static_cast<unsigned>(width_of(steps_in(planes, 1))), ~(low | static_cast<uint32_t>(high) << 16)};
    out.close(count);
  }

  static GRADLANE_INLINE void put(const CodedGroup& group, uint8_t* at, uint8_t* escapes) {
    const Escape& escape = group.escape;
    _mm512_mask_storeu_epi32(at, first_planes(escape.width), _mm512_loadu_si512(group.q));
    at += escape.width * kPlaneBytes;
    const Floats raw = load_floats(group.rounded);
    put_raw(raw.high, escape.raw >> 16, put_raw(raw.low, escape.raw & 0xffff, at));
    if (group.tag == kEscape) put_escape(escapes, escape);
  }

  static GRADLANE_INLINE void get(const CodecParams& p, Escape escape, const uint8_t* at, float* x) {
    const __m512i values = values_of_bits(bits_of_group(at, escape.width));
    const Floats all = PlaneLattice(p).floats_of_words(flip_words(values));
    at += escape.width * kPlaneBytes;
    const auto low = static_cast<__mmask16>(escape.raw);
    const auto high = static_cast<__mmask16>(escape.raw >> 16);
    store_floats(x, {_mm512_mask_expandloadu_ps(all.low, low, at),
                     _mm512_mask_expandloadu_ps(all.high, high, at + count_bits(low) * sizeof(float))});
  }

 private:
  // Returns the nearest multiple of the step, or all bits of x unchanged from 2^23 steps on.
  static GRADLANE_INLINE __m512 rounded(__m512 exact, __m512 x) {
    const __m512 size = _mm512_abs_ps(x);
    const __m512 near = _mm512_sub_ps(_mm512_add_ps(size, exact), exact);
    const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0F));
    return _mm512_mask_or_ps(x, _mm512_cmp_ps_mask(size, exact, _CMP_LT_OQ), near, sign);
  }
  static GRADLANE_INLINE Floats rounded(const CodecParams& p, Floats x) {
    const __m512 exact = _mm512_set1_ps(p.exact);
    return {rounded(exact, x.low), rounded(exact, x.high)};
  }

  // Returns a mask of the floats that fit a word. Floats from 2^23 steps on are far outside, and comparisons with NaN
  // are false.
  static GRADLANE_INLINE __mmask16 fitting(const CodecParams& p, __m512 x) {
    const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-32768 * p.step), _CMP_GE_OQ);
    return _mm512_mask_cmp_ps_mask(above, x, _mm512_set1_ps(32767 * p.step), _CMP_LE_OQ);
  }

  // Returns x - rounded. It is 0 for Inf and NaN, and never -0.
  static GRADLANE_INLINE __m512 rest(__m512 x, __m512 rounded) {
    const __m512 rest = _mm512_sub_ps(x, rounded);
    return _mm512_maskz_add_ps(_mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q), rest, _mm512_setzero_ps());
  }

  // Writes the raw floats. It compresses them in a register: the instruction that compresses to memory is slow on Zen
  // 4.
  static GRADLANE_INLINE uint8_t* put_raw(__m512 x, uint32_t which, uint8_t* at) {
    const size_t count = count_bits(which);
    const __m512 raw = _mm512_maskz_compress_ps(static_cast<__mmask16>(which), x);
    _mm512_mask_storeu_ps(at, first_planes(count), raw);
    return at + count * sizeof(float);
  }
};

}  // namespace
}  // namespace gradlane
