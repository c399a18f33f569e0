// fixed.h - which bits of q travel in the `fixed` codec (included by avx512.cc only)
#pragma once

#include "compress/avx512/lattice.h"

namespace gradlane {
namespace {

struct FixedClasses {
  static constexpr bool kFeedback = true;
  static constexpr bool kTruncate = false;
  static constexpr bool kRawExact = false;

  explicit FixedClasses(const CodecParams&) {}

  GRADLANE_INLINE __m512i decode_words(ReadWords in) const {
    return _mm512_srav_epi16(in.words, in.shift(_mm512_set1_epi16(8)));
  }

  // With m = min(|q|, 255), the low bytes of m and 2m differ if q is not 0, and the high bytes if |q| > 127: one
  // comparison gives the whole mask.
  GRADLANE_INLINE Words encode_words(__m512i q, __m512i size) const {
    const __m512i m = _mm512_min_epu16(size, _mm512_set1_epi16(255));
    return {q, _mm512_cmpneq_epi8_mask(m, _mm512_add_epi16(m, m))};
  }
};

using Fixed = Lattice<FixedClasses>;

}  // namespace
}  // namespace gradlane
