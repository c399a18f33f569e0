// pack.h - codec pack, 32 floats at a time (included by avx2.cc only)
#pragma once

#include "compress/avx2/vectors.h"
#include "compress/pack_passes.h"

namespace gradlane {
namespace {

// ---- Eight elements of each type as words, and sums of words, rounded to the type

struct OfFp32 : PackFp32 {
  static GRADLANE_INLINE __m256 add(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
};

struct OfBf16 : PackBf16 {
  static GRADLANE_INLINE __m256i widen(__m128i halves) { return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16); }
  static GRADLANE_INLINE __m256i narrow(__m256i words) { return _mm256_srli_epi32(words, 16); }
  static GRADLANE_INLINE __m256 add(__m256 a, __m256 b) {
    const __m256i sum = _mm256_castps_si256(canonical(_mm256_add_ps(a, b)));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(sum, odd), _mm256_set1_epi32(0x7fff));
    return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
};

struct OfFp16 : PackFp16 {
  static GRADLANE_INLINE __m256i widen(__m128i halves) {
    const __m256i x = _mm256_cvtepu16_epi32(halves);
    return _mm256_or_si256(_mm256_slli_epi32(_mm256_srli_epi32(x, 15), 31),
                           _mm256_and_si256(_mm256_slli_epi32(x, 13), _mm256_set1_epi32(0x0fffe000)));
  }
  static GRADLANE_INLINE __m256i narrow(__m256i words) {
    return _mm256_or_si256(_mm256_slli_epi32(_mm256_srli_epi32(words, 31), 15),
                           _mm256_and_si256(_mm256_srli_epi32(words, 13), _mm256_set1_epi32(0x7fff)));
  }
  static GRADLANE_INLINE __m256 add(__m256 a, __m256 b) {
    const __m256 sum = canonical(_mm256_add_ps(value(a), value(b)));
    return _mm256_castsi256_ps(widen(_mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
  }

 private:
  static GRADLANE_INLINE __m256 value(__m256 words) {
    const __m256i halves = narrow(_mm256_castps_si256(words));
    return _mm256_cvtph_ps(_mm256_castsi256_si128(in_order(_mm256_packus_epi32(halves, halves))));
  }
};

template <class Of>
struct PackKernels {
  using Type = Of;
  using Floats = gradlane::Floats;

  static GRADLANE_INLINE Floats load(const uint8_t* p, size_t m) {
    if constexpr (Of::kBytes == sizeof(float)) {
      return load_group(reinterpret_cast<const float*>(p), m);
    } else {
      uint8_t some[kGroupFloats * Of::kBytes];
      if (m < kGroupFloats) [[unlikely]] {
        std::memset(some, 0, sizeof some);
        std::memcpy(some, p, m * Of::kBytes);
        p = some;
      }
      return floats_of(
          {{Of::widen(load16(p)), Of::widen(load16(p + 16)), Of::widen(load16(p + 32)), Of::widen(load16(p + 48))}});
    }
  }
  static GRADLANE_INLINE void store(uint8_t* p, size_t m, Floats x) {
    if constexpr (Of::kBytes == sizeof(float)) {
      store_group(reinterpret_cast<float*>(p), m, x);
    } else {
      uint8_t some[kGroupFloats * Of::kBytes];
      uint8_t* const to = m < kGroupFloats ? some : p;
      const Words words = words_of(x);
      for (size_t i = 0; i < 2; ++i) {
        const __m256i halves = _mm256_packus_epi32(Of::narrow(words.at[2 * i]), Of::narrow(words.at[2 * i + 1]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32 * i), in_order(halves));
      }
      if (m < kGroupFloats) [[unlikely]]
        std::memcpy(p, some, m * Of::kBytes);
    }
  }
  static GRADLANE_INLINE Floats add(Floats a, Floats b) {
    const Floats sum = map(a, b, [](__m256 x, __m256 y) GRADLANE_INLINE_LAMBDA { return Of::add(x, y); });
    return Of::kBytes == sizeof(float) ? canonical_if_any(sum) : sum;
  }

  static GRADLANE_INLINE size_t pack(Floats x, size_t m, uint8_t* out) {
    Words words = words_of(x);
    const uint32_t all = first_bits(m);
    const uint32_t nonzero = ~zeros_of(words);
    if (nonzero == 0) {
      out[0] = kPackZeros;
      return 1;
    }
    const bool masked = __builtin_popcount(all & ~nonzero) >= 2;
    const uint32_t mask = masked ? nonzero : all;
    const auto sent = static_cast<size_t>(__builtin_popcount(mask));
    if (masked) words = compact(words, mask);

    const __m256i exponents = bytes_of(words, exponent_of);
    const __m256i zeros = _mm256_cmpeq_epi8(exponents, _mm256_setzero_si256());
    // Least values of bytes, for which there is an instruction: of the complement, and of the exponents less one, where
    // 0 becomes 255.
    const __m256i ones = _mm256_set1_epi8(-1);
    const unsigned base = 255 - least_byte(_mm256_xor_si256(exponents, ones));
    const unsigned least = (least_byte(_mm256_add_epi8(exponents, ones)) + 1) & 0xff;
    const bool any_zero = (static_cast<uint32_t>(_mm256_movemask_epi8(zeros)) & first_bits(sent)) != 0;
    const unsigned head = pack_head<Of>(m, sent, base, least, any_zero);
    out[0] = static_cast<uint8_t>(head);
    if (head == kPackPlain) [[unlikely]] {
      store(out + 1, m, x);
      return 1 + m * Of::kBytes;
    }
    out[1] = static_cast<uint8_t>(base);
    uint8_t* to = out + 2;
    if (masked) {
      std::memcpy(to, &mask, sizeof mask);
      to += sizeof mask;
    }
    __m256i codes = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(base)), exponents);
    if ((head & kPackEscape) != 0) codes = _mm256_or_si256(codes, zeros);
    to = put_planes(to, codes, head & kPackBits, sent);
    if constexpr (Of::kRest == 3) {
      for (size_t i = 0; i < 4; ++i) put_rest(to + 24 * i, words.at[i]);
    } else {
      if constexpr (Of::kLowPlanes != 0) to = put_planes(to, bytes_of(words, low_of), Of::kLowPlanes, sent);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes_of(words, rest_of));
    }
    return packed_bytes<Of>(head, sent);
  }

  static GRADLANE_INLINE Floats unpack(const PackedGroup& group, size_t m, const uint8_t* end) {
    if (group.head == kPackZeros) return floats_of(Words{});
    if (group.head == kPackPlain) [[unlikely]]
      return load(group.planes, m);
    // No access past the end: near it, the rest of the block is copied.
    uint8_t copy[kPackSlack];
    const uint8_t* from = group.planes;
    if (end - from < static_cast<ptrdiff_t>(kPackSlack)) [[unlikely]] {
      std::memset(copy, 0, sizeof copy);
      std::memcpy(copy, from, group.bytes - 2 - ((group.head & kPackMasked) != 0 ? 4 : 0));
      from = copy;
    }
    const __m256i codes = get_planes(from, group.bits(), group.plane_bytes);
    from += group.bits() * group.plane_bytes;
    __m256i exponents = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(group.base)), codes);
    if ((group.head & kPackEscape) != 0) {
      const __m256i escape = _mm256_set1_epi8(static_cast<char>((1 << group.bits()) - 1));
      exponents = _mm256_andnot_si256(_mm256_cmpeq_epi8(codes, escape), exponents);
    }
    Words words;
    if constexpr (Of::kRest == 3) {
      words.at[0] = join(from_byte<0>(exponents), from);
      words.at[1] = join(from_byte<1>(exponents), from + 24);
      words.at[2] = join(from_byte<2>(exponents), from + 48);
      words.at[3] = join(from_byte<3>(exponents), from + 72);
    } else {
      const __m256i low = get_planes(from, Of::kLowPlanes, group.plane_bytes);
      from += Of::kLowPlanes * group.plane_bytes;
      const __m256i rest = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      words.at[0] = join(from_byte<0>(exponents), from_byte<0>(rest), from_byte<0>(low));
      words.at[1] = join(from_byte<1>(exponents), from_byte<1>(rest), from_byte<1>(low));
      words.at[2] = join(from_byte<2>(exponents), from_byte<2>(rest), from_byte<2>(low));
      words.at[3] = join(from_byte<3>(exponents), from_byte<3>(rest), from_byte<3>(low));
    }
    return floats_of(group.mask == ~uint32_t{0} ? words : expand(words, group.mask));
  }

 private:
  struct Words {
    __m256i at[4];
  };

  static GRADLANE_INLINE Words words_of(Floats x) {
    return {{_mm256_castps_si256(x.low.low), _mm256_castps_si256(x.low.high), _mm256_castps_si256(x.high.low),
             _mm256_castps_si256(x.high.high)}};
  }
  static GRADLANE_INLINE Floats floats_of(const Words& x) {
    return {{_mm256_castsi256_ps(x.at[0]), _mm256_castsi256_ps(x.at[1])},
            {_mm256_castsi256_ps(x.at[2]), _mm256_castsi256_ps(x.at[3])}};
  }
  static GRADLANE_INLINE uint32_t first_bits(size_t count) { return _bzhi_u32(~0U, static_cast<unsigned>(count)); }

  static GRADLANE_INLINE uint32_t zeros_of(const Words& x) {
    uint32_t zeros = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const __m256i equal = _mm256_cmpeq_epi32(x.at[i], _mm256_setzero_si256());
      zeros |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(equal))) << (8 * i);
    }
    return zeros;
  }

  // Moves the words with a bit in `mask` to the front. The others are 0.
  static GRADLANE_INLINE Words compact(const Words& x, uint32_t mask) {
    alignas(32) uint32_t from[kGroupFloats];
    alignas(32) uint32_t to[kGroupFloats] = {};
    std::memcpy(from, &x, sizeof x);
    for (size_t i = 0; mask != 0; mask &= mask - 1) to[i++] = from[__builtin_ctz(mask)];
    Words out;
    std::memcpy(&out, to, sizeof out);
    return out;
  }
  static GRADLANE_INLINE Words expand(const Words& x, uint32_t mask) {
    alignas(32) uint32_t from[kGroupFloats];
    alignas(32) uint32_t to[kGroupFloats] = {};
    std::memcpy(from, &x, sizeof x);
    for (size_t i = 0; mask != 0; mask &= mask - 1) to[__builtin_ctz(mask)] = from[i++];
    Words out;
    std::memcpy(&out, to, sizeof out);
    return out;
  }

  static GRADLANE_INLINE __m256i exponent_of(__m256i x) { return _mm256_srli_epi32(_mm256_slli_epi32(x, 1), 24); }
  // Return the sign and the upper seven bits of the mantissa, and the next three bits.
  static GRADLANE_INLINE __m256i rest_of(__m256i x) {
    return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(0x7f)),
                           _mm256_slli_epi32(_mm256_srli_epi32(x, 31), 7));
  }
  static GRADLANE_INLINE __m256i low_of(__m256i x) {
    return _mm256_and_si256(_mm256_srli_epi32(x, 13), _mm256_set1_epi32(7));
  }

  // Returns of(x) of all words as bytes, in the order of the floats.
  template <class F>
  static GRADLANE_INLINE __m256i bytes_of(const Words& x, F of) {
    const __m256i low = _mm256_packus_epi32(of(x.at[0]), of(x.at[1]));
    const __m256i high = _mm256_packus_epi32(of(x.at[2]), of(x.at[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
  }
  // Returns bytes 8 kPart to 8 kPart + 7 as words.
  template <int kPart>
  static GRADLANE_INLINE __m256i from_byte(__m256i bytes) {
    const __m128i half = kPart < 2 ? _mm256_castsi256_si128(bytes) : _mm256_extracti128_si256(bytes, 1);
    return _mm256_cvtepu8_epi32(kPart % 2 == 0 ? half : _mm_srli_si128(half, 8));
  }

  static GRADLANE_INLINE unsigned least_byte(__m256i bytes) {
    const __m128i half = _mm_min_epu8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    const __m128i pairs = _mm_min_epu8(half, _mm_srli_epi16(half, 8));
    return static_cast<unsigned>(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(pairs, _mm_set1_epi16(0xff))))) &
           0xff;
  }

  // Returns 32 bytes that are all ones where the bits at p are 1.
  static GRADLANE_INLINE __m256i spread(const uint8_t* p) {
    const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(broadcast_int(p), places), bits), bits);
  }

  // Writes planes of the lowest bits of numbers. Returns their end.
  static GRADLANE_INLINE uint8_t* put_planes(uint8_t* to, __m256i numbers, size_t count, size_t sent) {
    const uint32_t some = first_bits(sent);
    const size_t plane_bytes = (sent + 7) / 8;
    for (int j = 0; j < static_cast<int>(count); ++j, to += plane_bytes) {
      const __m256i at_top = _mm256_sll_epi16(numbers, _mm_cvtsi32_si128(7 - j));
      const uint32_t plane = static_cast<uint32_t>(_mm256_movemask_epi8(at_top)) & some;
      std::memcpy(to, &plane, sizeof plane);
    }
    return to;
  }
  static GRADLANE_INLINE __m256i get_planes(const uint8_t* from, size_t count, size_t plane_bytes) {
    __m256i numbers = _mm256_setzero_si256();
    for (size_t j = 0; j < count; ++j, from += plane_bytes) {
      const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << j));
      numbers = _mm256_or_si256(numbers, _mm256_and_si256(spread(from), bit));
    }
    return numbers;
  }

  // Writes mantissa and sign of 8 floats, in 24 bytes. The next 4 bytes are overwritten, too.
  static GRADLANE_INLINE void put_rest(uint8_t* to, __m256i x) {
    const __m256i rest = _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(0x7fffff)),
                                         _mm256_and_si256(_mm256_srli_epi32(x, 8), _mm256_set1_epi32(0x800000)));
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m256i bytes = _mm256_shuffle_epi8(rest, order);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(bytes));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 12), _mm256_extracti128_si256(bytes, 1));
  }
  // Puts 8 floats together, of whose rest one byte and the low bits are given.
  static GRADLANE_INLINE __m256i join(__m256i exponents, __m256i rest, __m256i low) {
    const __m256i signs = _mm256_slli_epi32(_mm256_srli_epi32(rest, 7), 31);
    const __m256i upper = _mm256_slli_epi32(_mm256_and_si256(rest, _mm256_set1_epi32(0x7f)), 16);
    const __m256i mantissa = Of::kLowPlanes != 0 ? _mm256_or_si256(upper, _mm256_slli_epi32(low, 13)) : upper;
    return _mm256_or_si256(_mm256_or_si256(signs, mantissa), _mm256_slli_epi32(exponents, 23));
  }
  // Puts 8 floats together. 28 bytes at `from` are read.
  static GRADLANE_INLINE __m256i join(__m256i exponents, const uint8_t* from) {
    const __m256i bytes =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
                                _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 12)), 1);
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    const __m256i rest = _mm256_shuffle_epi8(bytes, order);
    const __m256i signs = _mm256_slli_epi32(_mm256_srli_epi32(rest, 23), 31);
    const __m256i magnitude =
        _mm256_or_si256(_mm256_and_si256(rest, _mm256_set1_epi32(0x7fffff)), _mm256_slli_epi32(exponents, 23));
    return _mm256_or_si256(signs, magnitude);
  }
};

}  // namespace
}  // namespace gradlane
