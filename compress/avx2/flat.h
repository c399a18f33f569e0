// flat.h - codecs without tags, 8 floats at a time: raw, bf16, fp16 (included by avx2.cc only)
#pragma once

#include "compress/avx2/vectors.h"

namespace gradlane {
namespace {

// A vector of 8 floats: the `Lanes` of FlatPasses (compress/passes.h). Each codec defines its format in memory.
struct FlatLanes {
  static constexpr size_t kCount = 8;

  struct Float {
    static constexpr size_t kWidth = 4;
    static GRADLANE_INLINE __m256 load(const uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
    static GRADLANE_INLINE void store(uint8_t* p, __m256 x) { _mm256_storeu_ps(reinterpret_cast<float*>(p), x); }
  };

  template <class Form>
  static GRADLANE_INLINE __m256 load(const uint8_t* p, size_t count) {
    if (count == kCount) return Form::load(p);
    uint8_t buffer[kCount * Form::kWidth] = {};
    std::memcpy(buffer, p, count * Form::kWidth);
    return Form::load(buffer);
  }
  template <class Form>
  static GRADLANE_INLINE void store(uint8_t* p, size_t count, __m256 x) {
    if (count == kCount) return Form::store(p, x);
    uint8_t buffer[kCount * Form::kWidth];
    Form::store(buffer, x);
    std::memcpy(p, buffer, count * Form::kWidth);
  }
  static GRADLANE_INLINE __m256 add(__m256 a, __m256 b) { return canonical(_mm256_add_ps(a, b)); }
};

using Raw = FlatLanes::Float;

struct Bf16 {
  static constexpr size_t kWidth = 2;
  static GRADLANE_INLINE __m256 load(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
  }
  static GRADLANE_INLINE void store(uint8_t* p, __m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i half = _mm256_add_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i words = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)),
                                             _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    const __m256i packed = in_order(_mm256_packus_epi32(words, words));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
};

struct Fp16 {
  static constexpr size_t kWidth = 2;
  static GRADLANE_INLINE __m256 load(const uint8_t* p) { return _mm256_cvtph_ps(load16(p)); }
  static GRADLANE_INLINE void store(uint8_t* p, __m256 x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

}  // namespace
}  // namespace gradlane
