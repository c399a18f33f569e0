// inceptionn.h - the bits of q that the `inceptionn` codec sends (included by avx512.cc only)
//
// q counts multiples of 2^-15. Words have sign and magnitude. The byte of tag 1 is in the upper half of its word. So
// bit 15 of the word is the sign, for tag 1 as for tag 2.
#pragma once

#include "compress/avx512/lattice.h"

namespace gradlane {
namespace {

template <bool kTowardsZero>
class InceptionnClasses {
 public:
  static constexpr bool kTruncate = kTowardsZero;

  explicit InceptionnClasses(const CodecParams& p) {
    const int half = kTruncate ? 0 : 1 << (7 - p.split);
    split_ = _mm512_set1_epi16(static_cast<short>(p.split));
    half_ = _mm512_set1_epi16(static_cast<short>(half));
    last_byte_ = _mm512_set1_epi16(static_cast<short>((1 << (15 - p.split)) - 1 - half));
    keep_above_ = _mm512_set1_epi16(static_cast<short>(((1 << (7 + p.split - p.bits)) - 1) << 8 | 254));
  }

  GRADLANE_INLINE __m512i decode_words(ReadWords in) const {
    // 0x8000 - w negates the magnitude of a negative word. The shift of tag 1 drops only zeros.
    const __m512i w =
        _mm512_mask_sub_epi16(in.words, _mm512_movepi16_mask(in.words), _mm512_set1_epi16(-0x8000), in.words);
    return _mm512_srav_epi16(w, in.shift(split_));
  }

  GRADLANE_INLINE Words encode_words(__m512i q, __m512i size) const {
    const __mmask32 fits = _mm512_cmple_epu16_mask(size, last_byte_);
    const __m512i byte = _mm512_sllv_epi16(_mm512_add_epi16(size, half_), split_);
    const __m512i field = _mm512_mask_mov_epi16(size, fits, byte);
    // Bytes to keep: tag 2 keeps both. Tag 1 keeps the upper one, and tag 0, where |q| is below 2^(15-b), keeps none.
    // With tags 0 and 1, the lower byte is at most 254, because h is at least 1.
    const __m512i kept = _mm512_mask_sllv_epi16(_mm512_set1_epi16(-1), fits, size, split_);
    // field | (q & 0x8000)
    return {_mm512_ternarylogic_epi32(field, q, _mm512_set1_epi16(-0x8000), 0xf8),
            _mm512_cmpgt_epu8_mask(kept, keep_above_)};
  }

 private:
  // Each of these has the same value in all words:
  __m512i split_;       // h
  __m512i half_;        // half a unit of the 8-bit class: 2^(7-h), or 0 to truncate
  __m512i last_byte_;   // largest |q| that rounds to 7 bits
  __m512i keep_above_;  // limits: bytes above them are kept, see encode_words()
};

template <bool kTowardsZero>
using Inceptionn = Lattice<InceptionnClasses<kTowardsZero>>;

}  // namespace
}  // namespace gradlane
