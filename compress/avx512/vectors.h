// vectors.h - 32 floats at a time: loads and stores of a full group or its first floats, packing and unpacking by tags
// (included by avx512.cc only)
//
// Floats become 32 *words* of 16 bits, one per float, before they become payload. Words are enough for tags 0, 1 and 2.
// A group with a tag 3 is a mixed group: its payload goes through 32-bit lanes. Decoding does the reverse.
#pragma once

#include "compress/avx512/pairwise.h"
#include "compress/writer.h"

namespace gradlane {
namespace {

// 32 floats in order.
struct Floats {
  __m512 low, high;
};

GRADLANE_INLINE const uint8_t* bytes_at(const float* p, size_t index) {
  return reinterpret_cast<const uint8_t*>(p) + index * sizeof(float);
}
GRADLANE_INLINE uint8_t* bytes_at(float* p, size_t index) {
  return reinterpret_cast<uint8_t*>(p) + index * sizeof(float);
}

GRADLANE_INLINE Floats load_floats(const float* p) { return {_mm512_loadu_ps(p), _mm512_loadu_ps(bytes_at(p, 16))}; }
GRADLANE_INLINE void store_floats(float* p, Floats x) {
  _mm512_storeu_ps(p, x.low);
  _mm512_storeu_ps(bytes_at(p, 16), x.high);
}

// Loads and stores only the first `count` of 32 floats. The other floats are loaded as 0.
class SomeFloats {
 public:
  explicit SomeFloats(size_t count) {
    const uint32_t mask = count >= kGroupFloats ? ~0U : (1U << count) - 1;
    low_ = static_cast<__mmask16>(mask);
    high_ = static_cast<__mmask16>(mask >> 16);
  }
  GRADLANE_INLINE Floats load(const float* p) const {
    return {_mm512_maskz_loadu_ps(low_, p), _mm512_maskz_loadu_ps(high_, bytes_at(p, 16))};
  }
  GRADLANE_INLINE void store(float* p, Floats x) const {
    _mm512_mask_storeu_ps(p, low_, x.low);
    _mm512_mask_storeu_ps(bytes_at(p, 16), high_, x.high);
  }

 private:
  __mmask16 low_, high_;
};

GRADLANE_INLINE uint64_t spread(uint32_t mask, uint64_t places) { return _pdep_u64(mask, places); }
GRADLANE_INLINE uint32_t gather(uint64_t word, uint64_t places) {
  return static_cast<uint32_t>(_pext_u64(word, places));
}
GRADLANE_INLINE size_t count_bits(uint64_t word) { return static_cast<size_t>(__builtin_popcountll(word)); }

// ---- Narrow groups: tags 0, 1, 2

// Words to write. `keep` has a bit for each byte that goes into the payload. Tag 1 keeps the high byte of the word or
// the low one, as the codec chooses. Tag 2 keeps both.
struct Words {
  __m512i words;
  __mmask64 keep;
};

// Returns the tag word of a narrow group from the bytes that are kept. A pair of bits 00 becomes 00, 01 and 10 become
// 01, and 11 becomes 10.
GRADLANE_INLINE uint64_t tags_of(__mmask64 keep) { return keep - ((keep >> 1) & kTagLow); }

GRADLANE_INLINE __mmask64 first_bytes(size_t count) { return _bzhi_u64(~0ULL, static_cast<unsigned>(count)); }

constexpr size_t kNarrowBytes = 2 * kGroupFloats;  // most bytes of payload

GRADLANE_INLINE void advance(Words w, Sink& sink, uint8_t* tags) {
  store_tags(tags, tags_of(w.keep));
  sink.advance(count_bits(w.keep));
}

// Stores a whole vector. The sink must have room for kNarrowBytes.
struct PutWords {
  GRADLANE_INLINE bool operator()(Words w, Sink& sink, uint8_t* tags) const {
    _mm512_storeu_si512(sink.at, _mm512_maskz_compress_epi8(w.keep, w.words));
    advance(w, sink, tags);
    return true;
  }
};

// Stores only the payload. Returns false and writes nothing if it does not fit.
struct PutExactly {
  GRADLANE_INLINE bool operator()(Words w, Sink& sink, uint8_t* tags) const {
    const size_t bytes = count_bits(w.keep);
    if (sink.room() < static_cast<ptrdiff_t>(bytes)) return false;
    _mm512_mask_storeu_epi8(sink.at, first_bytes(bytes), _mm512_maskz_compress_epi8(w.keep, w.words));
    advance(w, sink, tags);
    return true;
  }
};

// Payload that is not yet read.
struct Payload {
  const uint8_t* at;
  const uint8_t* end;

  [[nodiscard]] GRADLANE_INLINE bool has(size_t bytes) const { return end - at >= static_cast<ptrdiff_t>(bytes); }
};

// Words of a narrow group that was read. The one byte of tag 1 is in the upper half of its word, and the lower half is
// 0.
struct ReadWords {
  __m512i words;
  __mmask64 keep;  // bytes that came from the payload

  // Returns `count` in the words of tags 0 and 1, and 0 in those of tag 2. `count` must be less than 256. (VPMOVM2B
  // would work, but more than doubles the time of a decode loop on Golden Cove.)
  GRADLANE_INLINE __m512i shift(__m512i count) const {
    return _mm512_mask_mov_epi8(count, keep, _mm512_setzero_si512());
  }
};

// Returns the bytes of words that the payload of these tags fills. A pair of bits 00 becomes 00, 01 becomes 10, and 10
// becomes 11; 11 must not occur.
GRADLANE_INLINE uint64_t kept_bytes(uint64_t tags) { return tags + ((tags | tags >> 1) & kTagLow); }

class NarrowGroup {
 public:
  GRADLANE_INLINE explicit NarrowGroup(uint64_t tags) : raw_(raw_tags(tags)), keep_(kept_bytes(tags)) {}
  [[nodiscard]] GRADLANE_INLINE bool has_raw() const { return raw_ != 0; }
  [[nodiscard]] GRADLANE_INLINE size_t bytes() const { return count_bits(keep_); }
  // Reads bytes() bytes and no more.
  [[nodiscard]] GRADLANE_INLINE ReadWords read(const uint8_t* p) const {
    return {_mm512_maskz_expandloadu_epi8(keep_, p), keep_};
  }

 private:
  uint64_t raw_;
  uint64_t keep_;
};

// Pack 2 x 16 int32 to 32 words in order, with saturation.
GRADLANE_INLINE __m512i pack_words(__m512i low, __m512i high) {
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  return _mm512_permutexvar_epi64(order, _mm512_packs_epi32(low, high));
}
GRADLANE_INLINE __m512i pack_words_unsigned(__m512i low, __m512i high) {
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  return _mm512_permutexvar_epi64(order, _mm512_packus_epi32(low, high));
}

// ---- Any group: words as above, except for raw floats

// Floats to write.
struct Mixed {
  Words words;    // words of the floats that are not raw
  __mmask32 raw;  // mask of the raw floats
  Floats raw_value;
};

// Returns the bytes to keep of 16 lanes of 32 bits. `pairs` has two bits for each lane, for the bytes of one half of
// it. `whole` has a bit for each lane of which all bytes are kept.
GRADLANE_INLINE __mmask64 lane_bytes(uint32_t pairs, uint64_t places, uint32_t whole) {
  return spread(pairs, places) | spread(whole & 0xffff, 0x1111111111111111) * 15;
}

// Writes a group. Returns false and writes nothing if it does not fit.
GRADLANE_INLINE bool put_mixed(const Mixed& m, Sink& sink, uint8_t* tags) {
  constexpr uint64_t kLowHalf = 0x3333333333333333;
  const __mmask64 keep_low = lane_bytes(static_cast<uint32_t>(m.words.keep), kLowHalf, m.raw);
  const __mmask64 keep_high = lane_bytes(static_cast<uint32_t>(m.words.keep >> 32), kLowHalf, m.raw >> 16);
  const size_t bytes_low = count_bits(keep_low);
  const size_t bytes_high = count_bits(keep_high);
  if (static_cast<ptrdiff_t>(bytes_low + bytes_high) > sink.room()) return false;
  const __m512i low = _mm512_mask_mov_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(m.words.words)),
                                            static_cast<__mmask16>(m.raw), _mm512_castps_si512(m.raw_value.low));
  const __m512i high =
      _mm512_mask_mov_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(m.words.words, 1)),
                            static_cast<__mmask16>(m.raw >> 16), _mm512_castps_si512(m.raw_value.high));
  const __m512i packed_low = _mm512_maskz_compress_epi8(keep_low, low);
  const __m512i packed_high = _mm512_maskz_compress_epi8(keep_high, high);
  if (sink.room() >= 128) [[likely]] {
    _mm512_storeu_si512(sink.at, packed_low);
    _mm512_storeu_si512(sink.at + bytes_low, packed_high);
  } else {
    _mm512_mask_storeu_epi8(sink.at, first_bytes(bytes_low), packed_low);
    _mm512_mask_storeu_epi8(sink.at + bytes_low, first_bytes(bytes_high), packed_high);
  }
  store_tags(tags, tags_of(m.words.keep) | spread(m.raw, kTagLow) * 3);
  sink.advance(bytes_low + bytes_high);
  return true;
}

// Floats that were read.
struct ReadMixed {
  ReadWords words;
  __mmask32 raw;
  Floats raw_value;
};

// Reads a group. Returns false and does not change `payload` if the group is incomplete.
GRADLANE_INLINE bool get_mixed(uint64_t tags, Payload& payload, ReadMixed& out) {
  constexpr uint64_t kHighHalf = 0xcccccccccccccccc;
  const uint64_t raw = raw_tags(tags);
  out.raw = gather(raw, kTagLow);
  out.words.keep = kept_bytes(tags & ~(raw * 3));
  const __mmask64 keep_low = lane_bytes(static_cast<uint32_t>(out.words.keep), kHighHalf, out.raw);
  const __mmask64 keep_high = lane_bytes(static_cast<uint32_t>(out.words.keep >> 32), kHighHalf, out.raw >> 16);
  const size_t bytes_low = count_bits(keep_low);
  const size_t bytes_high = count_bits(keep_high);
  if (!payload.has(bytes_low + bytes_high)) return false;
  const __m512i low = _mm512_maskz_expandloadu_epi8(keep_low, payload.at);
  const __m512i high = _mm512_maskz_expandloadu_epi8(keep_high, payload.at + bytes_low);
  out.words.words = pack_words_unsigned(_mm512_srli_epi32(low, 16), _mm512_srli_epi32(high, 16));
  out.raw_value = {_mm512_castsi512_ps(low), _mm512_castsi512_ps(high)};
  payload.at += bytes_low + bytes_high;
  return true;
}

GRADLANE_INLINE Floats blend(__mmask32 which, Floats others, Floats chosen) {
  return {_mm512_mask_mov_ps(others.low, static_cast<__mmask16>(which), chosen.low),
          _mm512_mask_mov_ps(others.high, static_cast<__mmask16>(which >> 16), chosen.high)};
}

GRADLANE_INLINE Floats add(Floats a, Floats b) { return {_mm512_add_ps(a.low, b.low), _mm512_add_ps(a.high, b.high)}; }

// Return x with 0x7fc00000 for every NaN: see Codec.
GRADLANE_INLINE __m512 canonical(__m512 x) {
  return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                            _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}
GRADLANE_INLINE Floats canonical(Floats x) { return {canonical(x.low), canonical(x.high)}; }

GRADLANE_INLINE __m512 add_canonical(__m512 a, __m512 b) { return canonical(_mm512_add_ps(a, b)); }
GRADLANE_INLINE Floats add_canonical(Floats a, Floats b) { return canonical(add(a, b)); }

}  // namespace
}  // namespace gradlane
