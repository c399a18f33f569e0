// plane_values.h - conversion of floats to bit planes and back, 32 at a time (included by avx2.cc only)
//
// To round a float to the nearest multiple q*s (ties to even), the code adds magic = 1.5 * 2^23 * s. The low bits of
// the sum are then q. This holds for |q| <= 2^22. Larger values, Inf and NaN give a number so far from 0 that it
// saturates a 16-bit word. No width is found for such a word.
#pragma once

#include <array>

#include "compress/avx2/vectors.h"
#include "compress/planes.h"

namespace gradlane {
namespace {

// Floats and words are *split* here. The lower half of a vector has 4 of the first 16 floats of a group, or 8 of its
// first 16 words. The upper half has the floats or words 16 places later. When such vectors are packed to bytes, the
// bytes are in order. So no data has to cross the halves, which is slow.
GRADLANE_INLINE Floats load_split(const float* p) {
  const auto both = [p](size_t i) GRADLANE_INLINE_LAMBDA {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + i)), _mm_loadu_ps(p + i + 16), 1);
  };
  return {{both(0), both(4)}, {both(8), both(12)}};
}
GRADLANE_INLINE void store_split(float* p, Floats x) {
  const auto both = [p](size_t i, __m256 v) GRADLANE_INLINE_LAMBDA {
    _mm_storeu_ps(p + i, _mm256_castps256_ps128(v));
    _mm_storeu_ps(p + i + 16, _mm256_extractf128_ps(v, 1));
  };
  both(0, x.low.low);
  both(4, x.low.high);
  both(8, x.high.low);
  both(12, x.high.high);
}

// 32 words of 16 bits, 16 in each vector, in the order that load_split() makes.
struct PlaneWords {
  __m256i low, high;
};

// Up to 8 planes.
struct Planes {
  __m128i low, high;
};

// The byte orders to read planes 0 to 3 and 4 to 7, by a width of up to 8. If the width is above 4, a second load reads
// the last four planes, some of them again.
struct alignas(16) PlaneOrder {
  int32_t mask[4];  // lanes to read
  // places of byte k of plane j, and of plane j + 4, at index 4 k + j; the last plane serves for those above the width
  uint8_t low[16], high[16];
  uint32_t last;  // first byte of the load that `high` refers to
};
constexpr std::array<PlaneOrder, 9> kPlaneOrders = [] {
  std::array<PlaneOrder, 9> orders{};
  for (size_t w = 0; w <= 8; ++w) {
    const size_t last = w > 4 ? w - 4 : 0;
    orders[w].last = static_cast<uint32_t>(last * kPlaneBytes);
    for (size_t i = 0; i < 4; ++i) orders[w].mask[i] = i < w ? -1 : 0;
    for (size_t i = 0; i < 16; ++i) {
      const size_t k = i / 4, j = i % 4;
      orders[w].low[i] = static_cast<uint8_t>(w == 0 ? i : smaller(j, w - 1) * kPlaneBytes + k);
      orders[w].high[i] = static_cast<uint8_t>(w == 0 ? i : (smaller(j + 4, w - 1) - last) * kPlaneBytes + k);
    }
  }
  return orders;
}();

GRADLANE_INLINE __m128i bytes_at(const uint8_t* p) { return _mm_load_si128(reinterpret_cast<const __m128i*>(p)); }

// Transpose the bits of each 64-bit word: bit j of byte i becomes bit i of byte j, as in transpose_bits() of
// compress/plane_group.h. One step of this is swap_bits().
template <int kShift>
GRADLANE_INLINE __m256i swap_bits(__m256i x, uint64_t mask) {
  const __m256i t = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, kShift)),
                                     _mm256_set1_epi64x(static_cast<long long>(mask)));
  return _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64(t, kShift)));
}
GRADLANE_INLINE __m256i transpose_bits(__m256i x) {
  x = swap_bits<7>(x, 0x00aa00aa00aa00aa);
  x = swap_bits<14>(x, 0x0000cccc0000cccc);
  return swap_bits<28>(x, 0x00000000f0f0f0f0);
}

// Converts 32 bytes in order to eight planes.
GRADLANE_INLINE Planes planes_of(__m256i bytes) {
  const __m256i order = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15,  //
                                         0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  const __m256i pairs = _mm256_shuffle_epi8(transpose_bits(bytes), order);
  const __m128i first = _mm256_castsi256_si128(pairs);
  const __m128i second = _mm256_extracti128_si256(pairs, 1);
  return {_mm_unpacklo_epi16(first, second), _mm_unpackhi_epi16(first, second)};
}

// Converts planes to bytes. Lane k of `low` has byte k of planes 0 to 3, and lane k of `high` has byte k of planes 4 to
// 7.
GRADLANE_INLINE __m256i bytes_of_halves(__m128i low, __m128i high) {
  return transpose_bits(
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi32(low, high)), _mm_unpackhi_epi32(low, high), 1));
}

// Converts `width` planes, 0 to 8, to bytes. It reads no byte after them.
GRADLANE_INLINE __m256i bytes_of_planes(const uint8_t* at, unsigned width) {
  const PlaneOrder& order = kPlaneOrders[width];
  const __m128i mask = _mm_load_si128(reinterpret_cast<const __m128i*>(order.mask));
  const __m128i first = _mm_maskload_epi32(reinterpret_cast<const int*>(at), mask);
  const __m128i last = _mm_maskload_epi32(reinterpret_cast<const int*>(at + order.last), mask);
  const __m128i low = _mm_shuffle_epi8(first, bytes_at(order.low));
  const __m128i high = _mm_shuffle_epi8(last, bytes_at(order.high));
  return bytes_of_halves(low, high);
}

// Write four planes, or all eight.
GRADLANE_INLINE void store_planes(uint8_t* at, __m128i planes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), planes);
}
GRADLANE_INLINE void store_planes(uint8_t* at, Planes planes) {
  store_planes(at, planes.low);
  store_planes(at + sizeof planes.low, planes.high);
}

// Writes the first `width` planes.
GRADLANE_INLINE void store_some_planes(uint8_t* at, unsigned width, Planes planes) {
  uint8_t all[sizeof planes];
  store_planes(all, planes);
  std::memcpy(at, all, width * kPlaneBytes);
}

// ---- Two groups of up to 4 bits at once, as halves of bytes

struct BytePair {
  __m256i first, second;
};

GRADLANE_INLINE bool are_nibbles(BytePair bytes) {
  const __m256i eight = _mm256_set1_epi8(8);
  const __m256i all = _mm256_or_si256(_mm256_add_epi8(bytes.first, eight), _mm256_add_epi8(bytes.second, eight));
  return _mm256_testz_si256(all, _mm256_set1_epi8(-0x10)) != 0;
}

// Computes the planes of two groups: `low` has the planes of the first one, `high` those of the second one.
GRADLANE_INLINE Planes planes_of_nibbles(BytePair bytes) {
  const __m256i low = _mm256_set1_epi8(15);
  return planes_of(_mm256_or_si256(_mm256_and_si256(bytes.first, low),
                                   _mm256_andnot_si256(low, _mm256_slli_epi16(bytes.second, 4))));
}

// Converts the planes of two groups to bytes. It reads no byte after them.
GRADLANE_INLINE BytePair bytes_of_nibbles(const uint8_t* at, unsigned first, unsigned second) {
  const auto load = [](const uint8_t* from, const PlaneOrder& order) GRADLANE_INLINE_LAMBDA {
    const __m128i mask = _mm_load_si128(reinterpret_cast<const __m128i*>(order.mask));
    return _mm_shuffle_epi8(_mm_maskload_epi32(reinterpret_cast<const int*>(from), mask), bytes_at(order.low));
  };
  const __m256i both =
      bytes_of_halves(load(at, kPlaneOrders[first]), load(at + first * kPlaneBytes, kPlaneOrders[second]));
  const __m256i low = _mm256_set1_epi8(15);
  const __m256i value = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1,  //
                                         0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  return {_mm256_shuffle_epi8(value, _mm256_and_si256(both, low)),
          _mm256_shuffle_epi8(value, _mm256_and_si256(_mm256_srli_epi16(both, 4), low))};
}

// ---- Words

// Convert between words and bytes in order. narrow_words() saturates words of more than 8 bits. low_bytes() and
// high_bytes() take words apart, and join_bytes() joins them.
GRADLANE_INLINE __m256i narrow_words(PlaneWords q) { return _mm256_packs_epi16(q.low, q.high); }
GRADLANE_INLINE __m256i low_bytes(PlaneWords q) {
  const __m256i low = _mm256_set1_epi16(0xff);
  return _mm256_packus_epi16(_mm256_and_si256(q.low, low), _mm256_and_si256(q.high, low));
}
GRADLANE_INLINE __m256i high_bytes(PlaneWords q) {
  return _mm256_packs_epi16(_mm256_srai_epi16(q.low, 8), _mm256_srai_epi16(q.high, 8));
}
GRADLANE_INLINE PlaneWords join_bytes(__m256i low, __m256i high) {
  return {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
}

// Returns the words of a group of up to 16 planes.
GRADLANE_INLINE PlaneWords load_words(const uint8_t* at, unsigned width) {
  if (width <= 8) {
    const __m256i bytes = bytes_of_planes(at, width);
    return join_bytes(bytes, _mm256_cmpgt_epi8(_mm256_setzero_si256(), bytes));
  }
  return join_bytes(bytes_of_planes(at, 8), bytes_of_planes(at + 8 * kPlaneBytes, width - 8));
}

// Returns the bits that the widest word needs: 1 for -1, 0 for 0, 2 for 1. It is 16 if a word may be saturated.
GRADLANE_INLINE unsigned width_of(PlaneWords q) {
  const auto zigzag = [](__m256i x) GRADLANE_INLINE_LAMBDA {
    return _mm256_xor_si256(_mm256_slli_epi16(x, 1), _mm256_srai_epi16(x, 15));
  };
  const __m256i all = _mm256_or_si256(zigzag(q.low), zigzag(q.high));
  const __m128i half = _mm_or_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  const __m128i quarter = _mm_or_si128(half, _mm_unpackhi_epi64(half, half));
  auto word = static_cast<uint64_t>(_mm_cvtsi128_si64(quarter));
  word |= word >> 32;
  word |= word >> 16;
  return 31 - static_cast<unsigned>(__builtin_clz(static_cast<unsigned>(word & 0xffff) * 2 + 1));
}

// Returns two set bits for each plane that differs from the plane below it. `below` has the planes below those of
// planes.high.
GRADLANE_INLINE unsigned steps_in(Planes planes, __m128i below) {
  const __m128i low = _mm_cmpeq_epi32(planes.low, _mm_slli_si128(planes.low, 4));
  const __m128i high = _mm_cmpeq_epi32(planes.high, below);
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi32(low, high))) ^ 0xffff;
}
GRADLANE_INLINE unsigned width_of_steps(unsigned steps) {
  return (31 - static_cast<unsigned>(__builtin_clz(2 * steps + 1))) / 2;
}

// Returns the bits that the widest byte needs, from the planes of the bytes. It is 8 if a byte may be saturated. The
// last plane that differs from the plane below it (plane 0: from zeros) is the sign. All planes above it are equal to
// it.
GRADLANE_INLINE unsigned width_of(Planes planes) {
  return width_of_steps(steps_in(planes, _mm_alignr_epi8(planes.high, planes.low, 12)));
}

// The widths of the two groups of planes_of_nibbles().
struct NibbleWidths {
  unsigned first, second;
};
GRADLANE_INLINE NibbleWidths widths_of_nibbles(Planes planes) {
  const unsigned steps = steps_in(planes, _mm_slli_si128(planes.high, 4));
  return {width_of_steps(steps & 0xff), width_of_steps(steps >> 8)};
}

class PlaneLattice {
 public:
  explicit PlaneLattice(const CodecParams& p)
      : magic_(_mm256_set1_ps(p.magic)),
        step_(_mm256_set1_ps(p.step)),
        exact_(_mm256_castps_si256(_mm256_set1_ps(p.exact))),
        byte_bias_(_mm256_set1_ps(p.exact + 0x1p7F * p.step)) {}

  // Return the steps of x as words or as bytes. x is split. Steps that are too large are saturated.
  GRADLANE_INLINE PlaneWords words(Floats x) const { return {words(x.low), words(x.high)}; }
  GRADLANE_INLINE __m256i bytes(Floats x) const { return narrow_words(words(x)); }  // in order

  // Returns x - contribution(x), if nothing is saturated. This order of operations gives +0 for -0.
  GRADLANE_INLINE Floats error(Floats x) const {
    return map(x, [&](__m256 v) GRADLANE_INLINE_LAMBDA {
      return _mm256_add_ps(v, _mm256_sub_ps(magic_, _mm256_add_ps(v, magic_)));
    });
  }

  // Returns the floats of words, in order.
  GRADLANE_INLINE Floats floats(PlaneWords q) const {
    return {{floats(_mm256_castsi256_si128(q.low)), floats(_mm256_castsi256_si128(q.high))},
            {floats(_mm256_extracti128_si256(q.low, 1)), floats(_mm256_extracti128_si256(q.high, 1))}};
  }

  // Returns the floats of bytes, in order. With its sign flipped, a byte becomes the lowest bits of a float between
  // 2^23 and 2^24 steps. Then 2^23 + 2^7 steps are subtracted. Nothing is rounded.
  GRADLANE_INLINE Floats floats(__m256i bytes) const {
    // moves fours of floats alternately to the lower and the upper half
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const __m256i values = _mm256_permutevar8x32_epi32(_mm256_xor_si256(bytes, _mm256_set1_epi8(-0x80)), order);
    return {{widen<0>(values), widen<4>(values)}, {widen<8>(values), widen<12>(values)}};
  }

 private:
  // Returns the floats of bytes kFirst to kFirst + 3 of each half.
  template <char kFirst>
  GRADLANE_INLINE __m256 widen(__m256i values) const {
    constexpr char kNone = -1;
    const __m256i low = _mm256_setr_epi8(kFirst, kNone, kNone, kNone, kFirst + 1, kNone, kNone, kNone,      //
                                         kFirst + 2, kNone, kNone, kNone, kFirst + 3, kNone, kNone, kNone,  //
                                         kFirst, kNone, kNone, kNone, kFirst + 1, kNone, kNone, kNone,      //
                                         kFirst + 2, kNone, kNone, kNone, kFirst + 3, kNone, kNone, kNone);
    const __m256i lanes = _mm256_or_si256(_mm256_shuffle_epi8(values, low), exact_);
    return _mm256_sub_ps(_mm256_castsi256_ps(lanes), byte_bias_);
  }
  GRADLANE_INLINE __m256i steps(__m256 x) const {
    return _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(x, magic_)), _mm256_castps_si256(magic_));
  }
  GRADLANE_INLINE __m256i words(Floats16 x) const { return _mm256_packs_epi32(steps(x.low), steps(x.high)); }
  GRADLANE_INLINE __m256 floats(__m128i words) const {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(words)), step_);
  }

  __m256 magic_;
  __m256 step_;
  __m256i exact_;     // 2^23 * s
  __m256 byte_bias_;  // (2^23 + 2^7) * s
};

}  // namespace
}  // namespace gradlane
