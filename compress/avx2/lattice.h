// lattice.h - codecs whose values are multiples of a step s, 32 floats at a time (included by avx2.cc only)
//
// To round a float to the nearest multiple q*s (ties to even), the code adds magic = 1.5 * 2^23 * s. The low bits of
// the sum are then q. This holds for |q| <= 2^22. Larger values, Inf and NaN give a number so far from 0 that it
// saturates a 16-bit word. So one test per group finds all groups that need the wide path.
//
// `Classes` distinguishes codecs on this lattice. It defines the bits of q that are sent:
// - `kTruncate`: true if the codec rounds towards zero, and adds local values to a sum without rounding them first
// - `__m256i words(q, size)`: 16 words that hold the bytes to send; size = |q| < 32767
// - `int keep(size)`: a bit for each byte of these words that is sent
// - `__m256i tags(size)`: the tags of 16 words in bits 7 and 15; any tags for raw words, whose q is saturated
// - `__m256i fields(q, size)`: the payloads of 16 words of tags 1 and 2, in their low bytes
// - `__m256 decode_any(lanes, tags)`: the floats of 8 payloads of any tag
// - `__m256i count(lanes)`: the payloads of tags 1 and 2 as signed numbers of units
// - `__m256 scales()`: the value of one unit, by tag; negative for tag 3
#pragma once

#include "compress/avx2/payload.h"

namespace gradlane {
namespace {

template <class Classes>
class Lattice {
 public:
  // True if add_narrow() also handles raw floats of the block, which may exceed the range of a word.
  static constexpr bool kAddsRaw = Classes::kTruncate;

  explicit Lattice(const CodecParams& p)
      : classes_(p),
        magic_(_mm256_set1_ps(p.magic)),
        exact_(_mm256_set1_ps(p.exact)),
        limit_(_mm256_set1_ps((Classes::kTruncate ? 32768.0F : 32767.5F) * p.step)) {}

  // Computes the words of x. Returns false if a value may need tag 3.
  GRADLANE_INLINE bool narrow(Floats x, Words& out) const {
    if constexpr (Classes::kTruncate) {
      return encode(_mm256_packs_epi32(truncated(x.low.low), truncated(x.low.high)),
                    _mm256_packs_epi32(truncated(x.high.low), truncated(x.high.high)), out);
    } else {
      return encode(words_of(add_magic(x.low.low), add_magic(x.low.high)),
                    words_of(add_magic(x.high.low), add_magic(x.high.high)), out);
    }
  }

  // Computes the words of in + contribution(local). Magic may round a large `local` too coarsely. If `in` is within the
  // range of a word, the sum is then outside that range. So testing the sum alone is enough.
  GRADLANE_INLINE bool add_narrow(Floats in, Floats local, Words& out) const {
    if constexpr (Classes::kTruncate) {
      return narrow(add(in, local), out);
    } else {
      const __m256 a = _mm256_add_ps(add_magic(local.low.low), in.low.low);
      const __m256 b = _mm256_add_ps(add_magic(local.low.high), in.low.high);
      const __m256 c = _mm256_add_ps(add_magic(local.high.low), in.high.low);
      const __m256 d = _mm256_add_ps(add_magic(local.high.high), in.high.high);
      return encode(words_of(a, b), words_of(c, d), out);
    }
  }

  // Converts `local` to the argument `addend` of sum().
  GRADLANE_INLINE Floats addend(Floats local) const {
    if constexpr (Classes::kTruncate) {
      return local;
    } else {
      return map(local, [&](__m256 v) GRADLANE_INLINE_LAMBDA { return minus_contribution(v); });
    }
  }

  // Returns in + contribution(local), where `addend` is addend(local). A sum of 0 may have any sign.
  static GRADLANE_INLINE Floats sum(Floats in, Floats addend) {
    return map(in, addend, [](__m256 v, __m256 w) GRADLANE_INLINE_LAMBDA {
      return Classes::kTruncate ? _mm256_add_ps(v, w) : _mm256_sub_ps(v, w);
    });
  }

  // Encodes any values. Signalling NaNs may become quiet: see WideGroup::keep_nans().
  GRADLANE_INLINE void encode_wide(Floats x, WideGroup& out) const {
    const Floats raw =
        map(x, [&](__m256 v) GRADLANE_INLINE_LAMBDA { return _mm256_cmp_ps(magnitude(v), limit_, _CMP_NLT_UQ); });
    const __m256i raw_low = pack(as_ints(raw.low));
    const __m256i raw_high = pack(as_ints(raw.high));
    const __m256i q_low = pack(steps(x.low));
    const __m256i q_high = pack(steps(x.high));
    const __m256i size_low = _mm256_abs_epi16(q_low);
    const __m256i size_high = _mm256_abs_epi16(q_high);
    const Floats kept =
        map(x, raw, [](__m256 v, __m256 mask) GRADLANE_INLINE_LAMBDA { return _mm256_and_ps(v, mask); });
    out.set_lanes(kept, _mm256_andnot_si256(raw_low, classes_.fields(q_low, size_low)),
                  _mm256_andnot_si256(raw_high, classes_.fields(q_high, size_high)));
    out.set_tags(_mm256_or_si256(classes_.tags(size_low), raw_low),
                 _mm256_or_si256(classes_.tags(size_high), raw_high));
  }

  // Decodes payloads of any tag. `tags` are in the low bits of their lanes.
  GRADLANE_INLINE __m256 decode_any(__m256i lanes, __m256i tags) const { return classes_.decode_any(lanes, tags); }

  static GRADLANE_INLINE __m256i count(__m256i lanes) { return Classes::count(lanes); }
  [[nodiscard]] GRADLANE_INLINE __m256 scales() const { return classes_.scales(); }

 private:
  struct Ints16 {
    __m256i low, high;
  };
  static GRADLANE_INLINE Ints16 as_ints(Floats16 x) {
    return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)};
  }
  static GRADLANE_INLINE __m256i pack(Ints16 x) { return _mm256_packs_epi32(x.low, x.high); }
  GRADLANE_INLINE Ints16 steps(Floats16 x) const {
    if constexpr (Classes::kTruncate) return {truncated(x.low), truncated(x.high)};
    return {low_bits(add_magic(x.low)), low_bits(add_magic(x.high))};
  }

  GRADLANE_INLINE bool encode(__m256i q_low, __m256i q_high, Words& out) const {
    const __m256i size_low = _mm256_abs_epi16(q_low);
    const __m256i size_high = _mm256_abs_epi16(q_high);
    // The size of a saturated word is 32767 or 32768. Only these have bit 15 set after 1 is added.
    const __m256i past = _mm256_add_epi16(_mm256_max_epu16(size_low, size_high), _mm256_set1_epi16(1));
    if (_mm256_testz_si256(past, _mm256_set1_epi16(-0x8000)) == 0) [[unlikely]]
      return false;
    out.low = classes_.words(q_low, size_low);
    out.high = classes_.words(q_high, size_high);
    out.keep = join(classes_.keep(size_low), classes_.keep(size_high));
    return true;
  }

  GRADLANE_INLINE __m256 add_magic(__m256 x) const { return _mm256_add_ps(x, magic_); }

  GRADLANE_INLINE __m256i low_bits(__m256 sum) const {
    return _mm256_sub_epi32(_mm256_castps_si256(sum), _mm256_castps_si256(magic_));
  }
  GRADLANE_INLINE __m256i words_of(__m256 sum_low, __m256 sum_high) const {
    return _mm256_packs_epi32(low_bits(sum_low), low_bits(sum_high));
  }

  // Returns x / s, rounded towards zero, for s = 2^-15. It multiplies by 2^15 with an addition to the exponent, because
  // a multiplication is slow for denormals. This turns denormals, too, into numbers far below 1. Large numbers are
  // limited before they overflow.
  static GRADLANE_INLINE __m256i truncated(__m256 x) {
    const __m256i size = _mm256_min_epi32(_mm256_castps_si256(magnitude(x)), _mm256_set1_epi32((127 + 15) << 23));
    const __m256i scaled = _mm256_add_epi32(size, _mm256_set1_epi32(15 << 23));
    return _mm256_sign_epi32(_mm256_cvttps_epi32(_mm256_castsi256_ps(scaled)), _mm256_castps_si256(x));
  }

  // Returns the negative of contribution(x), which is the nearest multiple of s, or x itself from 2^23 steps on.
  // Returns +0 for 0. Signalling NaNs become quiet.
  GRADLANE_INLINE __m256 minus_contribution(__m256 x) const {
    const __m256 below = _mm256_cmp_ps(magnitude(x), exact_, _CMP_LT_OQ);
    const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0F));
    const __m256 r = _mm256_and_ps(_mm256_or_ps(exact_, sign), below);
    return _mm256_sub_ps(r, _mm256_add_ps(x, r));
  }

  Classes classes_;
  __m256 magic_;
  __m256 exact_;
  __m256 limit_;  // magnitudes that are not below it are raw
};

}  // namespace
}  // namespace gradlane
