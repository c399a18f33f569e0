// plane_bits.h - conversion of bytes to bit planes and back, 64 at a time, and pairs of groups of them (included by
// AVX-512's translation units)
//
// One vector has 16 planes: those of the low and the high bytes of 32 words, or those of two groups of 32 bytes. Before
// they become planes, these bytes are in an order that is called *values* here. Each 64-bit word then has one byte of
// each of eight floats, the last float first. GF2P8AFFINEQB needs this order.
#pragma once

#include <immintrin.h>

#include <array>

#include "compress/plane_passes.h"

namespace gradlane {
namespace {

// ---- Byte orders: the place that each byte comes from

struct alignas(64) ByteOrder {
  uint8_t from[64] = {};
};

GRADLANE_INLINE __m512i permute(const ByteOrder& order, __m512i x) {
  return _mm512_permutexvar_epi8(_mm512_load_si512(&order), x);
}

// Returns the place among values of the byte of float i. `half` is the half of a word, or of 64 floats.
constexpr size_t value_at(size_t i, size_t half) { return 32 * half + (i ^ 7); }

// Orders that convert two vectors of 32-bit lanes, packed to words by VPACKSSDW, to values and back. kValuesOfBytes
// converts four vectors that VPACKSSDW and VPACKSSWB packed to bytes.
constexpr size_t packed_word_at(size_t i) { return i % 16 / 4 * 8 + i / 16 * 4 + i % 4; }
constexpr ByteOrder kValuesOfWords = [] {
  ByteOrder order;
  for (size_t i = 0; i < 32; ++i) {
    for (size_t h = 0; h < 2; ++h) order.from[value_at(i, h)] = static_cast<uint8_t>(2 * packed_word_at(i) + h);
  }
  return order;
}();
constexpr ByteOrder kWordsOfValues = [] {
  ByteOrder order;
  for (size_t i = 0; i < 64; ++i) order.from[kValuesOfWords.from[i]] = static_cast<uint8_t>(i);
  return order;
}();
constexpr ByteOrder kValuesOfBytes = [] {
  ByteOrder order;
  for (size_t i = 0; i < 64; ++i) {
    order.from[value_at(i, 0)] = static_cast<uint8_t>(i % 16 / 4 * 16 + i / 16 * 4 + i % 4);
  }
  return order;
}();

// Returns the place of the bits of floats 8k to 8k+7 in plane j of a half, after its values have been transposed.
constexpr size_t bits_at(size_t k, size_t j, size_t half) { return 32 * half + 8 * k + j; }
constexpr ByteOrder kPlanesOfBits = [] {
  ByteOrder order;
  for (size_t j = 0; j < kMostPlanes; ++j) {
    for (size_t k = 0; k < 4; ++k) order.from[4 * j + k] = static_cast<uint8_t>(bits_at(k, j % 8, j / 8));
  }
  return order;
}();

// Sets the order to transpose eight of `width` planes: those from `first` on, lowest last. These `width` planes stand
// from plane `begin` on. Above the width, the last plane is repeated. If the width is 0, all are plane 15, which is not
// loaded then and is 0.
constexpr void set_bits(ByteOrder& order, size_t half, size_t first, size_t begin, size_t width) {
  for (size_t j = 0; j < 8; ++j) {
    const size_t plane = width == 0 ? kMostPlanes - 1 : begin + smaller(first + j, width - 1);
    for (size_t k = 0; k < 4; ++k) order.from[bits_at(k, 7 - j, half)] = static_cast<uint8_t>(4 * plane + k);
  }
}

constexpr size_t kByte = 8;
constexpr size_t kWord = 14;

// Orders of the planes of one group, by width.
constexpr std::array<ByteOrder, kMostPlanes + 1> kBitsOfWords = [] {
  std::array<ByteOrder, kMostPlanes + 1> orders{};
  for (size_t w = 0; w <= kMostPlanes; ++w) {
    for (size_t h = 0; h < 2; ++h) set_bits(orders[w], h, 8 * h, 0, w);
  }
  return orders;
}();
// Orders of the planes of two groups, one after the other, by the byte that has both tags.
constexpr std::array<ByteOrder, 16 * (kByte + 1)> kBitsOfBytes = [] {
  std::array<ByteOrder, 16 * (kByte + 1)> orders{};
  for (size_t a = 0; a <= kByte; ++a) {
    for (size_t b = 0; b <= kByte; ++b) {
      set_bits(orders[a | b << 4], 0, 0, 0, a);
      set_bits(orders[a | b << 4], 1, 0, a, b);
    }
  }
  return orders;
}();

// ---- Values and planes

// Converts values to planes: bit j of byte 7-i of each 64-bit word becomes bit i of byte j.
GRADLANE_INLINE __m512i planes_of_values(__m512i values) {
  const __m512i unit = _mm512_set1_epi64(static_cast<long long>(0x8040201008040201));
  return permute(kPlanesOfBits, _mm512_gf2p8affine_epi64_epi8(unit, values, 0));
}

// Converts bits, which are planes in an order of set_bits(), to values. kFlip has the bits to flip in each byte.
template <int kFlip = 0>
GRADLANE_INLINE __m512i values_of_bits(__m512i bits) {
  const __m512i unit = _mm512_set1_epi64(0x0102040810204080);
  return _mm512_gf2p8affine_epi64_epi8(unit, bits, kFlip);
}

GRADLANE_INLINE __mmask16 first_planes(size_t count) {
  return static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(count)));
}

// Loads `count` planes, and reads no other bytes.
GRADLANE_INLINE __m512i load_planes(const uint8_t* at, size_t count) {
  return _mm512_maskz_loadu_epi32(first_planes(count), at);
}

// Returns the planes of a group in the order that values_of_bits() needs.
GRADLANE_INLINE __m512i bits_of_group(const uint8_t* at, size_t width) {
  return permute(kBitsOfWords[width], load_planes(at, width));
}

// Flips the signs of words. They are in the high bytes, which are the upper half of the values.
GRADLANE_INLINE __m512i flip_words(__m512i values) {
  return _mm512_xor_si512(values, _mm512_maskz_set1_epi8(0xffffffff00000000, -0x80));
}

// Returns a bit for each plane that differs from the plane below it. Planes in `begins` start a group, and are compared
// with zeros. The last plane that differs is the sign: all planes above it are equal to it.
GRADLANE_INLINE size_t steps_in(__m512i planes, __mmask16 begins) {
  const __m512i below = _mm512_maskz_alignr_epi32(static_cast<__mmask16>(~begins), planes, planes, 15);
  return _mm512_cmpneq_epi32_mask(planes, below);
}
GRADLANE_INLINE size_t width_of(size_t steps) {
  return 63U ^ static_cast<unsigned>(__builtin_clzll(2 * steps + 1));  // BSR
}

// ---- Two groups as bytes

// Limits of the widths in blocks and of sums. They let put_pair() recognise a sum with a saturated byte by its width. A
// block's group is added as bytes if it has at most kNarrowIn planes: a saturated byte plus such a byte needs 8 bits
// (127 - 32).
constexpr size_t kNarrowIn = 6;
constexpr size_t kNotNarrow = 0x8080;  // bits of steps_in() that mean a sum of 8 bits, in either group

GRADLANE_INLINE bool ample(const PlaneSink& sink) { return sink.room() >= static_cast<ptrdiff_t>(sizeof(__m512i)); }

// Writes a pair of groups. Returns false and writes nothing if one is not narrow or a whole vector does not fit.
GRADLANE_INLINE bool put_pair(__m512i values, PlaneSink& sink, uint8_t& tags) {
  const __m512i planes = planes_of_values(values);
  const size_t steps = steps_in(planes, 0x0101);
  if ((steps & kNotNarrow) != 0 || !ample(sink)) [[unlikely]]
    return false;
  const size_t first = width_of(steps & 0xff);
  const size_t second = width_of(steps >> 8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sink.at), _mm512_castsi512_si256(planes));
  sink.at += first * kPlaneBytes;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sink.at), _mm512_extracti64x4_epi64(planes, 1));
  sink.at += second * kPlaneBytes;
  tags = static_cast<uint8_t>(first | second << 4);
  return true;
}

// The tags of two groups that are to be read.
struct PairTags {
  size_t tags;  // both tags, as in a byte of the block

  [[nodiscard]] GRADLANE_INLINE size_t first() const { return tags & 15; }
  [[nodiscard]] GRADLANE_INLINE size_t second() const { return tags >> 4; }
  [[nodiscard]] GRADLANE_INLINE size_t planes() const { return first() + second(); }
  [[nodiscard]] GRADLANE_INLINE bool within(size_t width) const { return first() <= width && second() <= width; }
};

// Returns the planes of two groups in the order that values_of_bits() needs. It reads no byte after them.
GRADLANE_INLINE __m512i bits_of_pair(const uint8_t* at, PairTags widths) {
  return permute(kBitsOfBytes[widths.tags], load_planes(at, widths.planes()));
}

}  // namespace
}  // namespace gradlane
