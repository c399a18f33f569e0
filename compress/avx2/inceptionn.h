// inceptionn.h - the bits of q that the `inceptionn` codec sends (included by avx2.cc only)
//
// q counts multiples of 2^-15. Words have sign and magnitude. The byte of tag 1 is in the upper half of its word. So
// bit 15 of the word is the sign, for tag 1 as for tag 2.
#pragma once

#include "compress/avx2/lattice.h"

namespace gradlane {
namespace {

template <bool kTowardsZero>
class InceptionnClasses {
 public:
  static constexpr bool kTruncate = kTowardsZero;

  explicit InceptionnClasses(const CodecParams& p)
      : last_zero_(_mm256_set1_epi16(static_cast<short>((1 << (15 - p.bits)) - 1))),
        last_byte_(_mm256_set1_epi16(static_cast<short>((1 << (15 - p.split)) - 1 - half(p)))),
        factor_(_mm256_set1_epi16(static_cast<short>((1 << p.split) - 1))),
        half_(_mm256_set1_epi16(half(p))),
        shift_(_mm256_set1_epi16(static_cast<short>(1U << (8 + p.split)))),
        scales_(four_floats(0, p.step * 0x1p-16F / static_cast<float>(1U << p.split), p.step * 0x1p-16F, -1)) {}

  GRADLANE_INLINE __m256i words(__m256i q, __m256i size) const {
    const __m256i not_byte = _mm256_cmpgt_epi16(size, last_byte_);
    // (size + half) << h, minus size
    const __m256i more = _mm256_add_epi16(_mm256_mullo_epi16(size, factor_), _mm256_set1_epi16(kTruncate ? 0 : 0x80));
    const __m256i field = _mm256_add_epi16(size, _mm256_andnot_si256(not_byte, more));
    return _mm256_or_si256(field, _mm256_and_si256(q, _mm256_set1_epi16(-0x8000)));
  }

  GRADLANE_INLINE int keep(__m256i size) const {
    const __m256i upper = _mm256_and_si256(_mm256_cmpgt_epi16(size, last_zero_), _mm256_set1_epi16(-0x100));
    const __m256i lower = _mm256_and_si256(_mm256_cmpgt_epi16(size, last_byte_), _mm256_set1_epi16(0xff));
    return _mm256_movemask_epi8(_mm256_or_si256(upper, lower));
  }

  GRADLANE_INLINE __m256i tags(__m256i size) const {
    return tag_bits(_mm256_cmpgt_epi16(size, last_zero_), _mm256_cmpgt_epi16(size, last_byte_));
  }

  GRADLANE_INLINE __m256i fields(__m256i q, __m256i size) const {
    const __m256i sign = _mm256_and_si256(q, _mm256_set1_epi16(-0x8000));
    const __m256i byte = _mm256_mulhi_epu16(_mm256_add_epi16(size, half_), shift_);
    const __m256i one = _mm256_or_si256(byte, _mm256_srli_epi16(sign, 8));
    return _mm256_or_si256(_mm256_blendv_epi8(one, size, _mm256_cmpgt_epi16(size, last_byte_)), sign);
  }

  // Converts sign and magnitude to a signed number. None of these is -0.
  static GRADLANE_INLINE __m256i count(__m256i lanes) {
    return _mm256_sign_epi32(_mm256_and_si256(lanes, _mm256_set1_epi32(0x7fffffff)), lanes);
  }
  // Decodes like decode_group() in decode.h.
  GRADLANE_INLINE __m256 decode_any(__m256i lanes, __m256i tags) const {
    const __m256 scale = _mm256_permutevar_ps(scales_, tags);
    return _mm256_blendv_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(count(lanes)), scale), _mm256_castsi256_ps(lanes), scale);
  }

  [[nodiscard]] GRADLANE_INLINE __m256 scales() const { return scales_; }

 private:
  // Returns half a unit of the 8-bit class, in units of q; 0 if the codec truncates.
  static constexpr short half(const CodecParams& p) { return static_cast<short>(kTruncate ? 0 : 1 << (7 - p.split)); }

  __m256i last_zero_;  // largest |q| that counts as 0
  __m256i last_byte_;  // largest |q| that rounds to 7 bits
  __m256i factor_;     // 2^h - 1
  __m256i half_;
  __m256i shift_;  // 2^(8+h): the upper half of a product with it is the other factor, shifted right by 8 - h
  __m256 scales_;
};

template <bool kTowardsZero>
using Inceptionn = Lattice<InceptionnClasses<kTowardsZero>>;

}  // namespace
}  // namespace gradlane
