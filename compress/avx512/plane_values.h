// plane_values.h - conversion of floats to bit planes and back, 32 or 64 at a time (included by avx512.cc only)
//
// To round a float to the nearest multiple q*s (ties to even), the code adds magic = 1.5 * 2^23 * s. The low bits of
// the sum are then q. This holds for |q| <= 2^22. Larger values, Inf and NaN give a number so far from 0 that it
// saturates a word or a byte. No width is found for such a group.
#pragma once

#include "compress/avx512/plane_bits.h"
#include "compress/avx512/vectors.h"

namespace gradlane {
namespace {

class PlaneLattice {
 public:
  explicit PlaneLattice(const CodecParams& p)
      : magic_(_mm512_set1_ps(p.magic)),
        exact_(_mm512_castps_si512(_mm512_set1_ps(p.exact))),
        byte_bias_(_mm512_set1_ps(p.exact + 0x1p7F * p.step)),
        word_bias_(_mm512_set1_ps(p.exact + 0x1p15F * p.step)) {}

  // Return the steps of x, saturated if they are too large: words in the order of VPACKSSDW, and bytes as values (see
  // plane_bits.h).
  GRADLANE_INLINE __m512i words(Floats x) const { return _mm512_packs_epi32(nearest(x.low), nearest(x.high)); }
  GRADLANE_INLINE __m512i bytes(Floats a, Floats b) const {
    return permute(kValuesOfBytes, _mm512_packs_epi16(words(a), words(b)));
  }

  // Returns x - contribution(x), if nothing is saturated. This order of operations gives +0 for -0.
  GRADLANE_INLINE Floats error(Floats x) const { return {error(x.low), error(x.high)}; }

  // Return the floats of values whose sign is flipped. Such values become the lowest bits of a float between 2^23 and
  // 2^24 steps. Then word_bias_ or byte_bias_ is subtracted. Nothing is rounded.
  GRADLANE_INLINE Floats floats_of_words(__m512i values) const {
    return {widen<2>(values, kFloatWords[0], word_bias_), widen<2>(values, kFloatWords[1], word_bias_)};
  }
  GRADLANE_INLINE Floats floats_of_bytes(__m512i values, size_t half) const {
    return {widen<1>(values, kFloatBytes[2 * half], byte_bias_),
            widen<1>(values, kFloatBytes[2 * half + 1], byte_bias_)};
  }

 private:
  // Orders that move the values of 16 floats to the low bytes of their lanes.
  static constexpr std::array<ByteOrder, 2> kFloatWords = [] {
    std::array<ByteOrder, 2> orders{};
    for (size_t i = 0; i < 32; ++i) {
      for (size_t h = 0; h < 2; ++h) orders[i / 16].from[i % 16 * 4 + h] = static_cast<uint8_t>(value_at(i, h));
    }
    return orders;
  }();
  static constexpr std::array<ByteOrder, 4> kFloatBytes = [] {
    std::array<ByteOrder, 4> orders{};
    for (size_t i = 0; i < 64; ++i) orders[i / 16].from[i % 16 * 4] = static_cast<uint8_t>(value_at(i, 0));
    return orders;
  }();

  GRADLANE_INLINE __m512i nearest(__m512 x) const {
    return _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(x, magic_)), _mm512_castps_si512(magic_));
  }
  GRADLANE_INLINE __m512 error(__m512 x) const {
    return _mm512_add_ps(x, _mm512_sub_ps(magic_, _mm512_add_ps(x, magic_)));
  }
  template <int kBytes>
  GRADLANE_INLINE __m512 widen(__m512i values, const ByteOrder& order, __m512 bias) const {
    constexpr uint64_t kLow = kBytes == 1 ? 0x1111111111111111 : 0x3333333333333333;
    const __m512i lanes = _mm512_mask_permutexvar_epi8(exact_, kLow, _mm512_load_si512(&order), values);
    return _mm512_sub_ps(_mm512_castsi512_ps(lanes), bias);
  }

  __m512 magic_;
  __m512i exact_;     // 2^23 * s
  __m512 byte_bias_;  // (2^23 + 2^7) * s
  __m512 word_bias_;  // (2^23 + 2^15) * s
};

}  // namespace
}  // namespace gradlane
