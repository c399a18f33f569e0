// flat.h - codecs without tags, 16 floats at a time: raw, bf16, fp16 (included by avx512.cc only)
#pragma once

#include "compress/avx512/vectors.h"

namespace gradlane {
namespace {

// A vector of 16 floats: the `Lanes` of FlatPasses (compress/passes.h). Each codec defines its format in memory.
struct FlatLanes {
  static constexpr size_t kCount = 16;

  struct Float {
    static constexpr size_t kWidth = 4;
    static GRADLANE_INLINE __m512 load(__mmask16 some, const uint8_t* p) { return _mm512_maskz_loadu_ps(some, p); }
    static GRADLANE_INLINE void store(__mmask16 some, uint8_t* p, __m512 x) { _mm512_mask_storeu_ps(p, some, x); }
  };

  template <class Form>
  static GRADLANE_INLINE __m512 load(const uint8_t* p, size_t count) {
    return Form::load(first(count), p);
  }
  template <class Form>
  static GRADLANE_INLINE void store(uint8_t* p, size_t count, __m512 x) {
    Form::store(first(count), p, x);
  }
  static GRADLANE_INLINE __m512 add(__m512 a, __m512 b) { return add_canonical(a, b); }

 private:
  static GRADLANE_INLINE __mmask16 first(size_t count) {
    return static_cast<__mmask16>(count >= kCount ? 0xffff : (1U << count) - 1);
  }
};

using Raw = FlatLanes::Float;

struct Bf16 {
  static constexpr size_t kWidth = 2;
  static GRADLANE_INLINE __m512 load(__mmask16 some, const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, p)), 16));
  }
  // VCVTNEPS2BF16 is not used: it would flush denormals.
  static GRADLANE_INLINE void store(__mmask16 some, uint8_t* p, __m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i half = _mm512_add_epi32(_mm512_and_si512(upper, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), upper, _mm512_set1_epi32(0x40));
    _mm256_mask_storeu_epi16(p, some, _mm512_cvtepi32_epi16(rounded));
  }
};

struct Fp16 {
  static constexpr size_t kWidth = 2;
  static GRADLANE_INLINE __m512 load(__mmask16 some, const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, p));
  }
  static GRADLANE_INLINE void store(__mmask16 some, uint8_t* p, __m512 x) {
    _mm256_mask_storeu_epi16(p, some, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

}  // namespace
}  // namespace gradlane
