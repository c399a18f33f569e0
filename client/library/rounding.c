// rounding.c - rounds floats to integers and adds these to sums (any thread; no context)
#ifdef __x86_64__
#include <emmintrin.h>
#else
#include <arm_neon.h>
#endif
#include <string.h>

#include "client/gradlane.h"

enum { kWidth = 4 };

// round_and_add() adds 4 rounded floats to the sums at `to`. It returns the maxima of `most` and the magnitudes of the
// floats. Magnitudes are bits of floats without the sign, which have the order of integers; that of NaN is the largest.

#ifdef __x86_64__

typedef __m128 float_vector;
typedef __m128i integer_vector;

static inline float_vector fill(float value) { return _mm_set1_ps(value); }
static inline integer_vector zero_integers(void) { return _mm_setzero_si128(); }
static inline void store_integers(int32_t* to, integer_vector v) { _mm_storeu_si128((__m128i*)to, v); }

static inline integer_vector round_and_add(const float* from, int32_t* to, float_vector scale, integer_vector most) {
  const float_vector x = _mm_loadu_ps(from);
  store_integers(to, _mm_add_epi32(_mm_loadu_si128((const __m128i*)to), _mm_cvtps_epi32(_mm_mul_ps(x, scale))));
  const integer_vector bits = _mm_and_si128(_mm_castps_si128(x), _mm_set1_epi32(INT32_MAX));
  const integer_vector larger = _mm_cmpgt_epi32(bits, most);  // SSE2 has no maximum of integers
  return _mm_or_si128(_mm_and_si128(larger, bits), _mm_andnot_si128(larger, most));
}

#else

typedef float32x4_t float_vector;
typedef int32x4_t integer_vector;

static inline float_vector fill(float value) { return vdupq_n_f32(value); }
static inline integer_vector zero_integers(void) { return vdupq_n_s32(0); }
static inline void store_integers(int32_t* to, integer_vector v) { vst1q_s32(to, v); }

static inline integer_vector round_and_add(const float* from, int32_t* to, float_vector scale, integer_vector most) {
  const float_vector x = vld1q_f32(from);
  store_integers(to, vaddq_s32(vld1q_s32(to), vcvtnq_s32_f32(vmulq_f32(x, scale))));
  return vmaxq_s32(vandq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(INT32_MAX)), most);
}

#endif

float gradlane_add_rounded(const float* data, int32_t* sums, size_t count, float scale) {
  const float_vector factor = fill(scale);
  integer_vector most = zero_integers();
  const size_t whole = count - count % kWidth;
  for (size_t i = 0; i < whole; i += kWidth) most = round_and_add(data + i, sums + i, factor, most);
  float last[kWidth] = {0};
  int32_t last_sums[kWidth] = {0};
  for (size_t i = whole; i < count; ++i) {
    last[i - whole] = data[i];
    last_sums[i - whole] = sums[i];
  }
  most = round_and_add(last, last_sums, factor, most);
  for (size_t i = whole; i < count; ++i) sums[i] = last_sums[i - whole];
  int32_t lanes[kWidth];
  store_integers(lanes, most);
  for (unsigned i = 1; i < kWidth; ++i) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  float largest;
  memcpy(&largest, &lanes[0], sizeof(largest));
  return largest;
}
