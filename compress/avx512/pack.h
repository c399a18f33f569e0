// pack.h - codec pack, 32 floats at a time (included by avx512.cc only)
#pragma once

#include "compress/avx512/vectors.h"
#include "compress/pack_passes.h"

namespace gradlane {
namespace {

struct PackKernels {
  using Floats = gradlane::Floats;

  static GRADLANE_INLINE Floats load(const float* p, size_t m) {
    return m == kGroupFloats ? load_floats(p) : SomeFloats(m).load(p);
  }
  static GRADLANE_INLINE void store(float* p, size_t m, Floats x) {
    if (m == kGroupFloats) {
      store_floats(p, x);
    } else {
      SomeFloats(m).store(p, x);
    }
  }
  static GRADLANE_INLINE Floats add(Floats a, Floats b) { return add_canonical(a, b); }

  static GRADLANE_INLINE size_t pack(Floats x, size_t m, uint8_t* out) {
    const __m512i low = _mm512_castps_si512(x.low);
    const __m512i high = _mm512_castps_si512(x.high);
    const uint32_t all = _bzhi_u32(~0U, static_cast<unsigned>(m));
    const uint32_t nonzero = mask_of(_mm512_test_epi32_mask(low, low), _mm512_test_epi32_mask(high, high));
    if (nonzero == 0) {
      out[0] = kPackZeros;
      return 1;
    }
    const bool masked = __builtin_popcount(all & ~nonzero) >= 2;
    const uint32_t mask = masked ? nonzero : all;
    const auto sent = static_cast<size_t>(__builtin_popcount(mask));

    // Exponents as bytes, in the order of the floats.
    const __m256i exponents = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_slli_epi32(low, 1), 24))),
        _mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_slli_epi32(high, 1), 24)), 1);
    const __mmask32 normal = _mm256_test_epi8_mask(exponents, exponents);
    // Least values of bytes, for which there is an instruction: of the complement, and of the exponents less one, where
    // 0 becomes 255.
    const __m256i ones = _mm256_set1_epi8(-1);
    const unsigned base = 255 - least_byte(_mm256_xor_si256(exponents, ones));
    const unsigned least = (least_byte(_mm256_add_epi8(exponents, ones)) + 1) & 0xff;
    const unsigned head = pack_head(m, sent, base, least, (mask & ~normal) != 0);
    out[0] = static_cast<uint8_t>(head);
    if (head == kPackPlain) [[unlikely]] {
      SomeFloats(m).store(reinterpret_cast<float*>(out + 1), x);
      return 1 + m * sizeof(float);
    }
    out[1] = static_cast<uint8_t>(base);
    uint8_t* to = out + 2;
    __m256i codes = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(base)), exponents);
    if ((head & kPackEscape) != 0) codes = _mm256_mask_mov_epi8(ones, normal, codes);
    const unsigned k = head & kPackBits;
    const size_t plane_bytes = (sent + 7) / 8;
    if (masked) {
      std::memcpy(to, &mask, sizeof mask);
      to += sizeof mask;
      for (unsigned j = 0; j < k; ++j, to += plane_bytes) put_plane(to, _pext_u32(plane_of(codes, j), mask));
      const auto of_low = static_cast<size_t>(__builtin_popcount(mask & 0xffff));
      put_rest(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), low));
      put_rest(to + 3 * of_low, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask >> 16), high));
    } else {
      for (unsigned j = 0; j < k; ++j, to += plane_bytes) put_plane(to, plane_of(codes, j) & all);
      put_rest(to, low);
      put_rest(to + 48, high);
    }
    return packed_bytes(head, sent);
  }

  static GRADLANE_INLINE Floats unpack(const PackedGroup& group, size_t m, const uint8_t* end) {
    if (group.head == kPackZeros) return {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (group.head == kPackPlain) [[unlikely]] {
      return SomeFloats(m).load(reinterpret_cast<const float*>(group.planes));
    }
    const bool masked = (group.head & kPackMasked) != 0;
    const uint32_t mask = group.mask;
    __m256i codes = _mm256_setzero_si256();
    const uint8_t* from = group.planes;
    const bool near_end = end - from < static_cast<ptrdiff_t>(kPackSlack);
    for (unsigned j = 0; j < group.bits(); ++j, from += group.plane_bytes) {
      uint32_t plane = 0;
      if (near_end) [[unlikely]] {
        std::memcpy(&plane, from, group.plane_bytes);
      } else {
        std::memcpy(&plane, from, sizeof plane);
      }
      if (masked) plane = _pdep_u32(plane, mask);
      codes = _mm256_or_si256(codes, _mm256_maskz_mov_epi8(plane, _mm256_set1_epi8(static_cast<char>(1 << j))));
    }
    __m256i exponents = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(group.base)), codes);
    if ((group.head & kPackEscape) != 0) {
      const __m256i escape = _mm256_set1_epi8(static_cast<char>((1 << group.bits()) - 1));
      exponents = _mm256_maskz_mov_epi8(_mm256_cmpneq_epi8_mask(codes, escape), exponents);
    }
    const size_t of_low = masked ? static_cast<size_t>(__builtin_popcount(mask & 0xffff)) : 16;
    __m512i low = get_rest(from, end, near_end);
    __m512i high = get_rest(from + 3 * smaller(of_low, group.sent), end, near_end);
    if (masked) {
      low = _mm512_maskz_expand_epi32(static_cast<__mmask16>(mask), low);
      high = _mm512_maskz_expand_epi32(static_cast<__mmask16>(mask >> 16), high);
    }
    const __m512i exponents_low = _mm512_cvtepu8_epi32(_mm256_castsi256_si128(exponents));
    const __m512i exponents_high = _mm512_cvtepu8_epi32(_mm256_extracti128_si256(exponents, 1));
    return {join(static_cast<__mmask16>(mask), exponents_low, low),
            join(static_cast<__mmask16>(mask >> 16), exponents_high, high)};
  }

 private:
  static GRADLANE_INLINE uint32_t mask_of(__mmask16 low, __mmask16 high) { return low | uint32_t{high} << 16; }

  static GRADLANE_INLINE unsigned least_byte(__m256i bytes) {
    const __m128i half = _mm_min_epu8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    const __m128i pairs = _mm_min_epu8(half, _mm_srli_epi16(half, 8));
    return static_cast<unsigned>(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(pairs, _mm_set1_epi16(0xff))))) &
           0xff;
  }
  static GRADLANE_INLINE uint32_t plane_of(__m256i codes, unsigned j) {
    return _mm256_test_epi8_mask(codes, _mm256_set1_epi8(static_cast<char>(1 << j)));
  }
  static GRADLANE_INLINE void put_plane(uint8_t* to, uint32_t plane) { std::memcpy(to, &plane, sizeof plane); }

  // Writes mantissa and sign of 16 floats, in 48 bytes. The next 16 bytes are overwritten, too.
  static GRADLANE_INLINE void put_rest(uint8_t* to, __m512i x) {
    // bits where the third operand is 1 come from x, others from x >> 8
    const __m512i rest = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7fffff), x, _mm512_srli_epi32(x, 8), 0xca);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi8(three_of_four(), rest));
  }
  static GRADLANE_INLINE __m512i get_rest(const uint8_t* from, const uint8_t* end, bool near_end) {
    __m512i bytes;
    if (near_end) [[unlikely]] {
      const ptrdiff_t left = end - from;
      bytes = _mm512_maskz_loadu_epi8(first_bytes(left < 64 ? static_cast<size_t>(left) : 64), from);
    } else {
      bytes = _mm512_loadu_si512(from);
    }
    return _mm512_permutexvar_epi8(four_of_three(), bytes);
  }
  // Puts floats together. The upper bytes of `rest` are those of the next float.
  static GRADLANE_INLINE __m512 join(__mmask16 some, __m512i exponents, __m512i rest) {
    const __m512i signs = _mm512_slli_epi32(rest, 8);
    const __m512i magnitude =
        _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7fffff), rest, _mm512_slli_epi32(exponents, 23), 0xca);
    return _mm512_castsi512_ps(
        _mm512_maskz_ternarylogic_epi32(some, _mm512_set1_epi32(0x7fffffff), magnitude, signs, 0xca));
  }

  // Indices of bytes: the lower three of each word of four, and back. The fourth byte is any.
  static GRADLANE_INLINE __m512i three_of_four() {
    alignas(64) static constexpr auto kIndices = [] {
      struct {
        uint8_t at[64];
      } it{};
      for (unsigned i = 0; i < 48; ++i) it.at[i] = static_cast<uint8_t>(i / 3 * 4 + i % 3);
      return it;
    }();
    return _mm512_load_si512(kIndices.at);
  }
  static GRADLANE_INLINE __m512i four_of_three() {
    alignas(64) static constexpr auto kIndices = [] {
      struct {
        uint8_t at[64];
      } it{};
      for (unsigned i = 0; i < 64; ++i) it.at[i] = static_cast<uint8_t>(i / 4 * 3 + i % 4);
      return it;
    }();
    return _mm512_load_si512(kIndices.at);
  }
};

}  // namespace
}  // namespace gradlane
