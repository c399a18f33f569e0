// plane_values.h - floats to bit planes and back, 32 or 64 at a time (included by avx512.cc only)
//
// Adding magic = 1.5 * 2^23 * s rounds a float to the nearest multiple q*s (ties to even) and leaves q in the low bits
// of the sum. That holds for |q| <= 2^22; what lies beyond, Inf and NaN included, gives a number so far from 0 that it
// saturates a word or a byte, and then no width is found for it.
//
// One vector has 16 planes: those of the low and the high bytes of 32 words, or those of two groups of 32 bytes. As
// values its 64-bit words have a byte of eight floats each, the last one first: GF2P8AFFINEQB likes them so.
#pragma once

#include <array>

#include "compress/avx512/vectors.h"
#include "compress/planes.h"

namespace gradlane {
namespace {

// ---- Orders of bytes: where each one comes from

struct alignas(64) ByteOrder {
  uint8_t from[64] = {};
};

GRADLANE_INLINE __m512i permute(const ByteOrder& order, __m512i x) {
  return _mm512_permutexvar_epi8(_mm512_load_si512(&order), x);
}

// Among values, of float i and half (of a word, or of 64 floats) `half`.
constexpr size_t value_at(size_t i, size_t half) { return 32 * half + (i ^ 7); }

// What VPACKSSDW makes of two vectors of 32 bits, as values, and back; and what it and VPACKSSWB make of four.
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

// Where plane j of a half has the bits of floats 8k to 8k+7, when its values have been transposed.
constexpr size_t bits_at(size_t k, size_t j, size_t half) { return 32 * half + 8 * k + j; }
constexpr ByteOrder kPlanesOfBits = [] {
  ByteOrder order;
  for (size_t j = 0; j < kMostPlanes; ++j) {
    for (size_t k = 0; k < 4; ++k) order.from[4 * j + k] = static_cast<uint8_t>(bits_at(k, j % 8, j / 8));
  }
  return order;
}();

// To transpose eight of `width` planes that stand from plane `begin` on: their planes from `first` on, lowest last, and
// above the width copies of the last one. If the width is 0, plane 15: it is not loaded then, and 0.
constexpr void set_bits(ByteOrder& order, size_t half, size_t first, size_t begin, size_t width) {
  for (size_t j = 0; j < 8; ++j) {
    const size_t plane = width == 0 ? kMostPlanes - 1 : begin + smaller(first + j, width - 1);
    for (size_t k = 0; k < 4; ++k) order.from[bits_at(k, 7 - j, half)] = static_cast<uint8_t>(4 * plane + k);
  }
}

constexpr size_t kByte = 8;
constexpr size_t kWord = 14;

// By width: planes of a group.
constexpr std::array<ByteOrder, kMostPlanes + 1> kBitsOfWords = [] {
  std::array<ByteOrder, kMostPlanes + 1> orders{};
  for (size_t w = 0; w <= kMostPlanes; ++w) {
    for (size_t h = 0; h < 2; ++h) set_bits(orders[w], h, 8 * h, 0, w);
  }
  return orders;
}();
// By the byte that two tags are: planes of two groups, one behind the other.
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

// Bit j of byte 7-i of each 64-bit word becomes bit i of byte j.
GRADLANE_INLINE __m512i planes_of_values(__m512i values) {
  const __m512i unit = _mm512_set1_epi64(static_cast<long long>(0x8040201008040201));
  return permute(kPlanesOfBits, _mm512_gf2p8affine_epi64_epi8(unit, values, 0));
}

// The other way round. kFlip: bits to flip in each byte.
template <int kFlip = 0>
GRADLANE_INLINE __m512i values_of_bits(__m512i bits) {
  const __m512i unit = _mm512_set1_epi64(0x0102040810204080);
  return _mm512_gf2p8affine_epi64_epi8(unit, bits, kFlip);
}

GRADLANE_INLINE __mmask16 first_planes(size_t count) {
  return static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(count)));
}

// Reads as many planes as that.
GRADLANE_INLINE __m512i load_planes(const uint8_t* at, size_t count) {
  return _mm512_maskz_loadu_epi32(first_planes(count), at);
}

// The planes of a group, ready to be transposed.
GRADLANE_INLINE __m512i bits_of_group(const uint8_t* at, size_t width) {
  return permute(kBitsOfWords[width], load_planes(at, width));
}

// The signs of words: they are in the high bytes, which are the upper half of the values.
GRADLANE_INLINE __m512i flip_words(__m512i values) {
  return _mm512_xor_si512(values, _mm512_maskz_set1_epi8(0xffffffff00000000, -0x80));
}

// The planes that differ from the one below them, or from zeros in front of each of `begins`. The last of them is the
// sign: all above it are like it.
GRADLANE_INLINE size_t steps_in(__m512i planes, __mmask16 begins) {
  const __m512i below = _mm512_maskz_alignr_epi32(static_cast<__mmask16>(~begins), planes, planes, 15);
  return _mm512_cmpneq_epi32_mask(planes, below);
}
GRADLANE_INLINE size_t width_of(size_t steps) {
  return 63U ^ static_cast<unsigned>(__builtin_clzll(2 * steps + 1));  // BSR
}

// ---- Floats and values

class PlaneLattice {
 public:
  explicit PlaneLattice(const CodecParams& p)
      : magic_(_mm512_set1_ps(p.magic)),
        exact_(_mm512_castps_si512(_mm512_set1_ps(p.exact))),
        byte_bias_(_mm512_set1_ps(p.exact + 0x1p7F * p.step)),
        word_bias_(_mm512_set1_ps(p.exact + 0x1p15F * p.step)) {}

  // Saturated where x is too large: words as VPACKSSDW leaves them, and bytes as values.
  GRADLANE_INLINE __m512i words(Floats x) const { return _mm512_packs_epi32(nearest(x.low), nearest(x.high)); }
  GRADLANE_INLINE __m512i bytes(Floats a, Floats b) const {
    return permute(kValuesOfBytes, _mm512_packs_epi16(words(a), words(b)));
  }

  // x - contribution(x) where nothing is saturated. Added this way round, -0 leaves +0.
  GRADLANE_INLINE Floats error(Floats x) const { return {error(x.low), error(x.high)}; }

  // Of values whose sign is flipped. They become the lowest bits of a float between 2^23 and 2^24 steps; what is too
  // much of it is subtracted. Nothing is rounded.
  GRADLANE_INLINE Floats floats_of_words(__m512i values) const {
    return {widen<2>(values, kFloatWords[0], word_bias_), widen<2>(values, kFloatWords[1], word_bias_)};
  }
  GRADLANE_INLINE Floats floats_of_bytes(__m512i values, size_t half) const {
    return {widen<1>(values, kFloatBytes[2 * half], byte_bias_),
            widen<1>(values, kFloatBytes[2 * half + 1], byte_bias_)};
  }

 private:
  // Of 16 floats each, by the low bytes of their lanes.
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
