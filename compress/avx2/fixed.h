// fixed.h - which bits of q travel in the `fixed` codec (included by avx2.cc only)
#pragma once

#include "compress/avx2/lattice.h"

namespace gradlane {
namespace {

class FixedClasses {
 public:
  static constexpr bool kFeedback = true;
  static constexpr bool kTruncate = false;
  static constexpr bool kRawExact = false;

  explicit FixedClasses(const CodecParams& p)
      : scales_(four_floats(0, p.step * 0x1p-24F, p.step * 0x1p-16F, -1)),
        flips_(_mm256_xor_ps(four_floats(p.magic, p.magic, p.magic, 0),
                             _mm256_castsi256_ps(_mm256_setr_epi32(0, 0x80, 0x8000, 0, 0, 0x80, 0x8000, 0)))),
        zeros_(four_floats(p.magic, p.magic + 128 * p.step, p.magic + 32768 * p.step, 0)) {}

  static GRADLANE_INLINE __m256i words(__m256i q, __m256i) { return q; }

  // m = min(size, 128) in both bytes of a word, plus 127, has bit 7 set from 1 on, bit 15 from 128 on.
  static GRADLANE_INLINE int keep(__m256i size) {
    const __m256i m = _mm256_min_epu16(size, _mm256_set1_epi16(128));
    return _mm256_movemask_epi8(
        _mm256_add_epi16(_mm256_mullo_epi16(m, _mm256_set1_epi16(0x101)), _mm256_set1_epi16(127)));
  }

  static GRADLANE_INLINE __m256i tags(__m256i size) {
    return tag_bits(_mm256_cmpgt_epi16(size, _mm256_setzero_si256()), _mm256_cmpgt_epi16(size, _mm256_set1_epi16(127)));
  }

  static GRADLANE_INLINE __m256i count(__m256i lanes) { return lanes; }

  // A payload of tag 1 or 2, with its sign bit flipped, is a number from 0 on. In the low bits of magic that is a
  // float, from which the payload of 0 is subtracted. From raw floats nothing is.
  GRADLANE_INLINE __m256 decode_any(__m256i lanes, __m256i tags) const {
    const __m256 sum = _mm256_xor_ps(_mm256_castsi256_ps(lanes), _mm256_permutevar_ps(flips_, tags));
    return _mm256_sub_ps(sum, _mm256_permutevar_ps(zeros_, tags));
  }
  static GRADLANE_INLINE const LaneTable& unpack_any() { return kUnpackLow; }

  [[nodiscard]] GRADLANE_INLINE __m256 scales() const { return scales_; }

 private:
  __m256 scales_;
  __m256 flips_;  // by tag: magic, with the sign bit of a payload flipped; 0 for raw floats
  __m256 zeros_;  // by tag: what that makes of a payload of 0
};

using Fixed = Lattice<FixedClasses>;

}  // namespace
}  // namespace gradlane
