// lattice.h - codecs whose values are multiples of a step s, 32 floats at a time (included by avx512.cc only)
//
// To round a float to the nearest multiple q*s (ties to even), the code adds magic = 1.5 * 2^23 * s. The low bits of
// the sum are then q. This holds for |q| <= 2^22. Larger values, Inf and NaN give a number so far from 0 that it
// saturates a 16-bit word. So one comparison per group finds all groups that are mixed.
//
// `Classes` distinguishes codecs on this lattice. It defines the bits of q that are sent:
// - `kTruncate`: true if the codec rounds towards zero, and adds local values to a sum without rounding them first
// - `__m512i decode_words(ReadWords)`: q of a group that was read; any value for raw floats
// - `Words encode_words(q, size)`: the bytes of q to send, and any bytes for raw floats; size = |q|, and only bit 15 of
//   q must be right
#pragma once

#include "compress/avx512/vectors.h"

namespace gradlane {
namespace {

template <class Classes>
class Lattice {
 public:
  explicit Lattice(const CodecParams& p)
      : classes_(p),
        magic_(_mm512_set1_ps(p.magic)),
        exact_(_mm512_set1_ps(p.exact)),
        exact_words_(_mm512_set1_epi16(static_cast<short>(__builtin_bit_cast(uint32_t, p.exact) >> 16))),
        bias_(_mm512_set1_ps(p.exact + 0x1p15F * p.step)) {}

  // ---- Narrow groups

  // 32 floats as numbers of steps.
  struct Quantised {
    __m512i q;     // saturated; with kTruncate only bit 15 of each word is right, which is the sign
    __m512i size;  // |q|; 32767 or 32768 if saturated
  };
  GRADLANE_INLINE Quantised quantise(Floats x) const {
    if constexpr (Classes::kTruncate) {
      return {pack_words(_mm512_castps_si512(x.low), _mm512_castps_si512(x.high)),
              pack_words(truncated(x.low), truncated(x.high))};
    } else {
      const __m512i q = pack_words(nearest(x.low), nearest(x.high));
      return {q, _mm512_abs_epi16(q)};
    }
  }

  // Encodes words. Returns false if one may be saturated.
  GRADLANE_INLINE bool encode(Quantised x, Words& out) const {
    if (saturated(x.size)) [[unlikely]]
      return false;
    out = classes_.encode_words(x.q, x.size);
    return true;
  }

  // Decodes words. q + 2^15 becomes the lowest bits of a float between 2^23 and 2^24 steps. Then 2^23 + 2^15 steps are
  // subtracted. Nothing is rounded.
  GRADLANE_INLINE Floats decode(ReadWords in) const {
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i biased = _mm512_xor_si512(classes_.decode_words(in), _mm512_set1_epi16(-0x8000));
    const __m512i q = _mm512_permutexvar_epi64(order, biased);
    return {_mm512_sub_ps(_mm512_castsi512_ps(_mm512_unpacklo_epi16(q, exact_words_)), bias_),
            _mm512_sub_ps(_mm512_castsi512_ps(_mm512_unpackhi_epi16(q, exact_words_)), bias_)};
  }

  // Returns acc + decode(in). It does not use FMA: unlike an addition, FMA is slow if acc is denormal and the product
  // is not 0.
  GRADLANE_INLINE Floats decode_add(ReadWords in, Floats acc) const { return add(acc, decode(in)); }

  // The state of a hop between its two parts: begin_hop() computes the operands, finish_hop() encodes the sum.
  struct Sum {
    __m512i in;       // q of the block
    __m512i local;    // q of the local floats
    Quantised total;  // the sum, with kTruncate; `in` and `local` are unused then
  };
  GRADLANE_INLINE Sum begin_hop(ReadWords in, Floats local) const {
    Sum sum;
    if constexpr (Classes::kTruncate) {
      sum.total = quantise(decode_add(in, local));
    } else {
      sum.in = classes_.decode_words(in);
      sum.local = quantise(local).q;
    }
    return sum;
  }
  // Returns false if the local value or the sum may be outside the range of a word.
  GRADLANE_INLINE bool finish_hop(Sum s, Words& out) const {
    if constexpr (Classes::kTruncate) {
      return encode(s.total, out);
    } else {
      const __m512i sum = _mm512_adds_epi16(s.in, s.local);
      const __m512i size = _mm512_abs_epi16(sum);
      // A bitwise or replaces the maximum. It is never smaller, so no saturated word is missed.
      if (saturated(_mm512_or_si512(_mm512_abs_epi16(s.local), size))) [[unlikely]]
        return false;
      out = classes_.encode_words(sum, size);
      return true;
    }
  }

  // ---- Any group

  GRADLANE_INLINE Mixed encode_any(Floats x) const {
    const Quantised q = quantise(x);
    const __mmask32 raw = too_large(x.low) | static_cast<__mmask32>(too_large(x.high)) << 16;
    return {classes_.encode_words(q.q, q.size), raw, x};
  }

  GRADLANE_INLINE Floats decode_any(const ReadMixed& in) const { return blend(in.raw, decode(in.words), in.raw_value); }

  // Returns what x adds to a sum. This is x itself with kTruncate, otherwise the nearest multiple of s. From 2^23 steps
  // on it is x itself, too.
  GRADLANE_INLINE Floats contribution(Floats x) const {
    if constexpr (Classes::kTruncate) return x;
    return {contribution(x.low), contribution(x.high)};
  }

 private:
  GRADLANE_INLINE __m512 contribution(__m512 x) const {
    const __m512 size = _mm512_abs_ps(x);
    const __m512 rounded = _mm512_sub_ps(_mm512_add_ps(size, exact_), exact_);
    const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0F));
    // Only values below 2^23 steps are rounded.
    return _mm512_mask_or_ps(x, _mm512_cmp_ps_mask(size, exact_, _CMP_LT_OQ), rounded, sign);
  }

  // Returns a mask of lanes where |q| > 32767, or x is Inf or NaN.
  GRADLANE_INLINE __mmask16 too_large(__m512 x) const {
    const __m512i q = Classes::kTruncate ? truncated(x) : nearest(x);
    return _mm512_cmpgt_epu32_mask(_mm512_abs_epi32(q), _mm512_set1_epi32(32767));
  }

  static GRADLANE_INLINE bool saturated(__m512i size) {
    return _mm512_cmpge_epu16_mask(size, _mm512_set1_epi16(32767)) != 0;
  }

  GRADLANE_INLINE __m512i nearest(__m512 x) const {
    return _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(x, magic_)), _mm512_castps_si512(magic_));
  }

  // Returns |x| / s, rounded towards zero.
  GRADLANE_INLINE __m512i truncated(__m512 x) const {
    const __m512 sum = _mm512_add_round_ps(_mm512_abs_ps(x), exact_, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    return _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(exact_));
  }

  Classes classes_;
  __m512 magic_;         // 1.5 * 2^23 * s
  __m512 exact_;         // 2^23 * s
  __m512i exact_words_;  // upper half of a lane of exact_, in all words
  __m512 bias_;          // (2^23 + 2^15) * s
};

}  // namespace
}  // namespace gradlane
