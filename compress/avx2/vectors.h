// vectors.h - 32 floats at a time: loads and stores of a full group or its first floats, and arithmetic (included by
// avx2.cc only)
#pragma once

#include "compress/avx2/tables.h"

namespace gradlane {
namespace {

// 16 and 32 floats in order.
struct Floats16 {
  __m256 low, high;
};
struct Floats {
  Floats16 low, high;
};

template <class F>
GRADLANE_INLINE Floats map(Floats x, F f) {
  return {{f(x.low.low), f(x.low.high)}, {f(x.high.low), f(x.high.high)}};
}
template <class F>
GRADLANE_INLINE Floats map(Floats x, Floats y, F f) {
  return {{f(x.low.low, y.low.low), f(x.low.high, y.low.high)},
          {f(x.high.low, y.high.low), f(x.high.high, y.high.high)}};
}

GRADLANE_INLINE Floats load_group(const float* p) {
  return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}, {_mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)}};
}
GRADLANE_INLINE void store_group(float* p, Floats x) {
  _mm256_storeu_ps(p, x.low.low);
  _mm256_storeu_ps(p + 8, x.low.high);
  _mm256_storeu_ps(p + 16, x.high.low);
  _mm256_storeu_ps(p + 24, x.high.high);
}

// Load and store the first `count` floats of a group. Missing floats are loaded as 0. A count of 32 or more means a
// full group.
GRADLANE_INLINE Floats load_group(const float* p, size_t count) {
  if (count >= kGroupFloats) [[likely]]
    return load_group(p);
  float buffer[kGroupFloats] = {};
  std::memcpy(buffer, p, count * sizeof *p);
  return load_group(buffer);
}
GRADLANE_INLINE void store_group(float* p, size_t count, Floats x) {
  if (count >= kGroupFloats) [[likely]]
    return store_group(p, x);
  float buffer[kGroupFloats];
  store_group(buffer, x);
  std::memcpy(p, buffer, count * sizeof *p);
}

GRADLANE_INLINE Floats add(Floats a, Floats b) {
  return map(a, b, [](__m256 x, __m256 y) GRADLANE_INLINE_LAMBDA { return _mm256_add_ps(x, y); });
}

// Return a sum in which every NaN is 0x7fc00000: see Codec.
GRADLANE_INLINE __m256 canonical(__m256 sum) {
  return _mm256_blendv_ps(sum, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                          _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
}
GRADLANE_INLINE Floats canonical(Floats sum) {
  return map(sum, [](__m256 x) GRADLANE_INLINE_LAMBDA { return canonical(x); });
}

GRADLANE_INLINE bool any_nan(Floats x) {
  const __m256 low = _mm256_cmp_ps(x.low.low, x.low.high, _CMP_UNORD_Q);
  const __m256 high = _mm256_cmp_ps(x.high.low, x.high.high, _CMP_UNORD_Q);
  return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}

// Does the same as canonical(), but faster if there is no NaN.
GRADLANE_INLINE Floats canonical_if_any(Floats sum) {
  if (any_nan(sum)) [[unlikely]]
    return canonical(sum);
  return sum;
}

GRADLANE_INLINE __m256 four_floats(float a, float b, float c, float d) {
  return _mm256_setr_ps(a, b, c, d, a, b, c, d);
}

// Returns the four bytes at p in all lanes.
GRADLANE_INLINE __m256i broadcast_int(const uint8_t* p) {
  int bits;
  std::memcpy(&bits, p, sizeof bits);
  return _mm256_set1_epi32(bits);
}

GRADLANE_INLINE __m256 magnitude(__m256 x) {
  return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

// Restores the order of lanes after two vectors of 32-bit lanes were packed into one of 16-bit lanes.
GRADLANE_INLINE __m256i in_order(__m256i packed) { return _mm256_permute4x64_epi64(packed, 0xd8); }

}  // namespace
}  // namespace gradlane
