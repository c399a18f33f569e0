// pack.h - codec pack, 32 floats at a time (included by avx512.cc only)
#pragma once

#include "compress/avx512/vectors.h"
#include "compress/pack_passes.h"

namespace gradlane {
namespace {

// ---- Sixteen elements of each type as words, and sums of words, rounded to the type

struct OfFp32 : PackFp32 {
  static GRADLANE_INLINE __m512i load(__mmask16 some, const uint8_t* p) { return _mm512_maskz_loadu_epi32(some, p); }
  static GRADLANE_INLINE void store(__mmask16 some, uint8_t* p, __m512i x) { _mm512_mask_storeu_epi32(p, some, x); }
  static GRADLANE_INLINE __m512 add(__m512 a, __m512 b) { return add_canonical(a, b); }
};

template <class Of>
struct OfHalves {
  static GRADLANE_INLINE __m512i load(__mmask16 some, const uint8_t* p) {
    return Of::widen(_mm256_maskz_loadu_epi16(some, p));
  }
  static GRADLANE_INLINE void store(__mmask16 some, uint8_t* p, __m512i x) {
    _mm256_mask_storeu_epi16(p, some, Of::narrow(x));
  }
};

struct OfBf16 : PackBf16, OfHalves<OfBf16> {
  static GRADLANE_INLINE __m512i widen(__m256i halves) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16); }
  static GRADLANE_INLINE __m256i narrow(__m512i words) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)); }
  static GRADLANE_INLINE __m512 add(__m512 a, __m512 b) {
    const __m512i sum = _mm512_castps_si512(add_canonical(a, b));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(sum, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(sum, odd), _mm512_set1_epi32(0x7fff));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
};

struct OfFp16 : PackFp16, OfHalves<OfFp16> {
  static GRADLANE_INLINE __m512i widen(__m256i halves) {
    const __m512i x = _mm512_cvtepu16_epi32(halves);
    return _mm512_or_si512(_mm512_slli_epi32(_mm512_srli_epi32(x, 15), 31),
                           _mm512_and_si512(_mm512_slli_epi32(x, 13), _mm512_set1_epi32(0x0fffe000)));
  }
  static GRADLANE_INLINE __m256i narrow(__m512i words) {
    return _mm512_cvtepi32_epi16(
        _mm512_or_si512(_mm512_slli_epi32(_mm512_srli_epi32(words, 31), 15),
                        _mm512_and_si512(_mm512_srli_epi32(words, 13), _mm512_set1_epi32(0x7fff))));
  }
  static GRADLANE_INLINE __m512 add(__m512 a, __m512 b) {
    const auto value = [](__m512 words)
                           GRADLANE_INLINE_LAMBDA { return _mm512_cvtph_ps(narrow(_mm512_castps_si512(words))); };
    const __m512 sum = add_canonical(value(a), value(b));
    return _mm512_castsi512_ps(widen(_mm512_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
  }
};

template <class Of>
struct PackKernels {
  using Type = Of;
  using Floats = gradlane::Floats;

  static GRADLANE_INLINE Floats load(const uint8_t* p, size_t m) {
    return m == kGroupFloats ? load_some(p, ~0U) : load_some(p, first_bits(m));
  }
  static GRADLANE_INLINE Floats load_some(const uint8_t* p, uint32_t some) {
    return {_mm512_castsi512_ps(Of::load(static_cast<__mmask16>(some), p)),
            _mm512_castsi512_ps(Of::load(static_cast<__mmask16>(some >> 16), p + 16 * Of::kBytes))};
  }
  static GRADLANE_INLINE void store(uint8_t* p, size_t m, Floats x) {
    if (m == kGroupFloats) {
      store_some(p, ~0U, x);
    } else {
      store_some(p, first_bits(m), x);
    }
  }
  static GRADLANE_INLINE void store_some(uint8_t* p, uint32_t some, Floats x) {
    Of::store(static_cast<__mmask16>(some), p, _mm512_castps_si512(x.low));
    Of::store(static_cast<__mmask16>(some >> 16), p + 16 * Of::kBytes, _mm512_castps_si512(x.high));
  }
  static GRADLANE_INLINE Floats add(Floats a, Floats b) { return {Of::add(a.low, b.low), Of::add(a.high, b.high)}; }

  static GRADLANE_INLINE size_t pack(Floats x, size_t m, uint8_t* out) {
    const __m512i low = _mm512_castps_si512(x.low);
    const __m512i high = _mm512_castps_si512(x.high);
    const uint32_t all = first_bits(m);
    const uint32_t nonzero = mask_of(_mm512_test_epi32_mask(low, low), _mm512_test_epi32_mask(high, high));
    if (nonzero == 0) {
      out[0] = kPackZeros;
      return 1;
    }
    const bool masked = __builtin_popcount(all & ~nonzero) >= 2;
    const uint32_t mask = masked ? nonzero : all;
    const auto sent = static_cast<size_t>(__builtin_popcount(mask));

    // Exponents as bytes, in the order of the floats.
    const __m256i exponents =
        bytes_of(_mm512_srli_epi32(_mm512_slli_epi32(low, 1), 24), _mm512_srli_epi32(_mm512_slli_epi32(high, 1), 24));
    const __mmask32 normal = _mm256_test_epi8_mask(exponents, exponents);
    // Least values of bytes, for which there is an instruction: of the complement, and of the exponents less one, where
    // 0 becomes 255.
    const __m256i ones = _mm256_set1_epi8(-1);
    const unsigned base = 255 - least_byte(_mm256_xor_si256(exponents, ones));
    const unsigned least = (least_byte(_mm256_add_epi8(exponents, ones)) + 1) & 0xff;
    const unsigned head = pack_head<Of>(m, sent, base, least, (mask & ~normal) != 0);
    out[0] = static_cast<uint8_t>(head);
    if (head == kPackPlain) [[unlikely]] {
      store(out + 1, m, x);
      return 1 + m * Of::kBytes;
    }
    out[1] = static_cast<uint8_t>(base);
    uint8_t* to = out + 2;
    __m256i codes = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(base)), exponents);
    if ((head & kPackEscape) != 0) codes = _mm256_mask_mov_epi8(ones, normal, codes);
    if (masked) {
      std::memcpy(to, &mask, sizeof mask);
      to += sizeof mask;
      put_body<true>(to, low, high, codes, head & kPackBits, mask, sent);
    } else {
      put_body<false>(to, low, high, codes, head & kPackBits, all, sent);
    }
    return packed_bytes<Of>(head, sent);
  }

  static GRADLANE_INLINE Floats unpack(const PackedGroup& group, size_t m, const uint8_t* end) {
    if (group.head == kPackZeros) return {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (group.head == kPackPlain) [[unlikely]]
      return load(group.planes, m);
    const bool masked = (group.head & kPackMasked) != 0;
    const uint32_t mask = group.mask;
    const uint8_t* from = group.planes;
    const bool near_end = end - from < static_cast<ptrdiff_t>(kPackSlack);
    const __m256i codes = get_planes(group, from, group.bits(), near_end);
    from += group.bits() * group.plane_bytes;
    __m256i exponents = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(group.base)), codes);
    if ((group.head & kPackEscape) != 0) {
      const __m256i escape = _mm256_set1_epi8(static_cast<char>((1 << group.bits()) - 1));
      exponents = _mm256_maskz_mov_epi8(_mm256_cmpneq_epi8_mask(codes, escape), exponents);
    }
    const __m512i exponents_low = low_half(exponents);
    const __m512i exponents_high = high_half(exponents);
    const auto mask_low = static_cast<__mmask16>(mask);
    const auto mask_high = static_cast<__mmask16>(mask >> 16);
    if constexpr (Of::kRest != 3) {
      const __m256i bits = get_planes(group, from, Of::kLowPlanes, near_end);
      from += Of::kLowPlanes * group.plane_bytes;
      __m256i rest = near_end ? _mm256_maskz_loadu_epi8(first_bits(group.sent), from)
                              : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      if (masked) rest = _mm256_maskz_expand_epi8(mask, rest);
      return {join(mask_low, exponents_low, low_half(rest), low_half(bits)),
              join(mask_high, exponents_high, high_half(rest), high_half(bits))};
    } else {
      const size_t of_low = masked ? static_cast<size_t>(__builtin_popcount(mask & 0xffff)) : 16;
      __m512i low = get_rest(from, end, near_end);
      __m512i high = get_rest(from + 3 * smaller(of_low, group.sent), end, near_end);
      if (masked) {
        low = _mm512_maskz_expand_epi32(mask_low, low);
        high = _mm512_maskz_expand_epi32(mask_high, high);
      }
      return {join(mask_low, exponents_low, low), join(mask_high, exponents_high, high)};
    }
  }

 private:
  static GRADLANE_INLINE uint32_t first_bits(size_t count) { return _bzhi_u32(~0U, static_cast<unsigned>(count)); }
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

  // Writes what follows the head, base and mask of a group: the floats with a bit in `mask`, which are all or `sent`.
  template <bool kMasked>
  static GRADLANE_INLINE void put_body(uint8_t* to, __m512i low, __m512i high, __m256i codes, unsigned bits,
                                       uint32_t mask, size_t sent) {
    to = put_planes<kMasked>(to, codes, bits, mask, sent);
    if constexpr (Of::kRest != 3) {
      to = put_planes<kMasked>(to, bytes_of(low_of(low), low_of(high)), Of::kLowPlanes, mask, sent);
      const __m256i rest = bytes_of(rest_of(low), rest_of(high));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), kMasked ? _mm256_maskz_compress_epi8(mask, rest) : rest);
    } else if constexpr (kMasked) {
      const auto of_low = static_cast<size_t>(__builtin_popcount(mask & 0xffff));
      put_rest(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), low));
      put_rest(to + 3 * of_low, _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask >> 16), high));
    } else {
      put_rest(to, low);
      put_rest(to + 48, high);
    }
  }
  // Writes planes of the lowest bits of numbers. Returns their end.
  template <bool kMasked>
  static GRADLANE_INLINE uint8_t* put_planes(uint8_t* to, __m256i numbers, size_t count, uint32_t mask, size_t sent) {
    const size_t plane_bytes = (sent + 7) / 8;
    for (unsigned j = 0; j < count; ++j, to += plane_bytes) {
      const uint32_t plane = plane_of(numbers, j);
      const uint32_t travels = kMasked ? _pext_u32(plane, mask) : plane & mask;
      std::memcpy(to, &travels, sizeof travels);
    }
    return to;
  }
  static GRADLANE_INLINE __m256i get_planes(const PackedGroup& group, const uint8_t* from, size_t count,
                                            bool near_end) {
    __m256i numbers = _mm256_setzero_si256();
    for (unsigned j = 0; j < count; ++j, from += group.plane_bytes) {
      uint32_t plane = 0;
      if (near_end) [[unlikely]] {
        std::memcpy(&plane, from, group.plane_bytes);
      } else {
        std::memcpy(&plane, from, sizeof plane);
      }
      if ((group.head & kPackMasked) != 0) plane = _pdep_u32(plane, group.mask);
      numbers = _mm256_or_si256(numbers, _mm256_maskz_mov_epi8(plane, _mm256_set1_epi8(static_cast<char>(1 << j))));
    }
    return numbers;
  }

  // Return 32 words as bytes, and halves of 32 bytes as words.
  static GRADLANE_INLINE __m256i bytes_of(__m512i low, __m512i high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(low)), _mm512_cvtepi32_epi8(high), 1);
  }
  static GRADLANE_INLINE __m512i low_half(__m256i bytes) { return _mm512_cvtepu8_epi32(_mm256_castsi256_si128(bytes)); }
  static GRADLANE_INLINE __m512i high_half(__m256i bytes) {
    return _mm512_cvtepu8_epi32(_mm256_extracti128_si256(bytes, 1));
  }

  // Return, in the lower bits, the sign and the upper seven bits of the mantissa, and the next three bits.
  static GRADLANE_INLINE __m512i rest_of(__m512i x) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7f), _mm512_srli_epi32(x, 16), _mm512_srli_epi32(x, 24), 0xca);
  }
  static GRADLANE_INLINE __m512i low_of(__m512i x) {
    return _mm512_and_si512(_mm512_srli_epi32(x, 13), _mm512_set1_epi32(7));
  }
  // Puts floats together, of whose rest one byte and the low bits are given.
  static GRADLANE_INLINE __m512 join(__mmask16 some, __m512i exponents, __m512i rest, __m512i low) {
    const __m512i mantissa = _mm512_or_si512(_mm512_slli_epi32(rest, 16), _mm512_slli_epi32(low, 13));
    const __m512i magnitude =
        _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7fffff), mantissa, _mm512_slli_epi32(exponents, 23), 0xca);
    return _mm512_castsi512_ps(_mm512_maskz_ternarylogic_epi32(some, _mm512_set1_epi32(0x7fffffff), magnitude,
                                                               _mm512_slli_epi32(rest, 24), 0xca));
  }

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
