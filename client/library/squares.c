// squares.c - the sum of squares of floats, the same bits on every machine (any thread; no context)
//
// Element i belongs to lane i % 16. Each lane is a double that adds the squares of its elements in order. At the end,
// lanes are added in pairs: 0 + 8, 1 + 9, ..., then 0 + 4, and so on. So the order of all additions is fixed, and wider
// instructions change nothing. The square of a float is exact in a double, so fused multiply-add changes nothing
// either.
#ifdef __x86_64__
#include <emmintrin.h>
#else
#include <arm_neon.h>
#endif

#include "client/gradlane.h"

enum { kLanes = 16, kPairs = kLanes / 2 };

#ifdef __x86_64__

typedef __m128d doubles;

static inline doubles zeros(void) { return _mm_setzero_pd(); }
static inline void store(double* to, doubles v) { _mm_storeu_pd(to, v); }

// Adds 4 floats to the lanes of two vectors.
static inline void add_squares(const float* data, doubles* low, doubles* high) {
  const __m128 x = _mm_loadu_ps(data);
  const __m128d first = _mm_cvtps_pd(x);
  const __m128d second = _mm_cvtps_pd(_mm_movehl_ps(x, x));
  *low = _mm_add_pd(*low, _mm_mul_pd(first, first));
  *high = _mm_add_pd(*high, _mm_mul_pd(second, second));
}

#else

typedef float64x2_t doubles;

static inline doubles zeros(void) { return vdupq_n_f64(0); }
static inline void store(double* to, doubles v) { vst1q_f64(to, v); }

// Adds 4 floats to the lanes of two vectors.
static inline void add_squares(const float* data, doubles* low, doubles* high) {
  const float32x4_t x = vld1q_f32(data);
  const doubles first = vcvt_f64_f32(vget_low_f32(x));
  const doubles second = vcvt_high_f64_f32(x);
  *low = vaddq_f64(*low, vmulq_f64(first, first));
  *high = vaddq_f64(*high, vmulq_f64(second, second));
}

#endif

double gradlane_sum_of_squares(const float* data, size_t count) {
  doubles sums[kPairs];
  for (unsigned i = 0; i < kPairs; ++i) sums[i] = zeros();
  const size_t whole = count - count % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    add_squares(data + i, &sums[0], &sums[1]);
    add_squares(data + i + 4, &sums[2], &sums[3]);
    add_squares(data + i + 8, &sums[4], &sums[5]);
    add_squares(data + i + 12, &sums[6], &sums[7]);
  }
  double lanes[kLanes];
  for (unsigned i = 0; i < kPairs; ++i) store(&lanes[2 * i], sums[i]);
  for (size_t i = whole; i < count; ++i) {
    const double x = (double)data[i];
    lanes[i - whole] += x * x;
  }
  for (unsigned half = kLanes / 2; half > 0; half /= 2) {
    for (unsigned i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
