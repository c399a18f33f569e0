// payload.h - 32 floats at a time: packing and unpacking of payload by tags (included by avx2.cc only)
//
// Encoding turns floats into 32 *words* of 16 bits, which are enough for tags 0, 1 and 2. A group that needs a tag 3
// takes the wide path, where each float has a 32-bit lane. Decoding always uses 32-bit lanes.
#pragma once

#include "compress/avx2/vectors.h"
#include "compress/passes.h"

namespace gradlane {
namespace {

// ---- Encoding of narrow groups: tags 0, 1, 2

// Words to write, in the order that results when two vectors of 32-bit lanes are packed: words 0..3, 8..11, 4..7,
// 12..15 in each half. `keep` has two bits for each word, in the same order. They select the bytes to write: none (tag
// 0), one (tag 1) or both (tag 2).
struct Words {
  __m256i low, high;
  uint64_t keep;
};

GRADLANE_INLINE uint64_t join(int low, int high) {
  return static_cast<uint32_t>(low) | static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32;
}

// Returns the tag word for Words::keep.
GRADLANE_INLINE uint64_t tags_of(uint64_t keep) {
  const uint64_t tags = (keep & kTagLow) + (keep >> 1 & kTagLow);
  const uint64_t swap = (tags ^ tags >> 8) & 0x0000ff000000ff00;
  return tags ^ swap ^ swap << 8;
}

// A buffer for narrow groups between two loops: one computes their words, the other writes them. A single loop would
// make each group one long chain of dependent instructions. Too few such chains fit into the scheduler of a core.
class WordsBatch {
 public:
  static constexpr size_t kGroups = 16;

  // Returns the number of groups to handle at a time. Their longest possible payload fits, with the 8 bytes that
  // put_quad() may write after it. There is space for these 8 bytes, because fitting() counts a tag word for each
  // group.
  static GRADLANE_INLINE size_t groups(size_t left, const Sink& sink) {
    static_assert(kTagBytes >= 8);
    return smaller(sink.fitting(kGroupFloats * 2), smaller(left, kGroups));
  }

  GRADLANE_INLINE void set(size_t i, Words w) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(words_[i]), w.low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(words_[i] + 32), w.high);
    keep_[i] = w.keep;
  }

  // Writes the first `count` groups.
  GRADLANE_INLINE void put(size_t count, Sink& sink, uint8_t* tags) const {
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* const words = words_[i];
      const auto* const keep = reinterpret_cast<const uint8_t*>(&keep_[i]);
      uint8_t* at = sink.at;
      at = put_quad(at, words, keep, 0);
      at = put_quad(at, words, keep, 2);
      at = put_quad(at, words, keep, 1);
      at = put_quad(at, words, keep, 3);
      at = put_quad(at, words, keep, 4);
      at = put_quad(at, words, keep, 6);
      at = put_quad(at, words, keep, 5);
      put_quad(at, words, keep, 7);
      store_tags(tags + i * kTagBytes, tags_of(keep_[i]));
      sink.advance(static_cast<size_t>(__builtin_popcountll(keep_[i])));
    }
  }

 private:
  // Writes words 4i..4i+3, in the order of Words. Returns the end of their bytes.
  static GRADLANE_INLINE uint8_t* put_quad(uint8_t* at, const uint8_t* words, const uint8_t* keep, size_t i) {
    const __m128i quad = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(words + 8 * i));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(at), _mm_shuffle_epi8(quad, load16(kCompress.control[keep[i]])));
    return at + kCounts.bytes[keep[i]];
  }

  alignas(32) uint8_t words_[kGroups][kGroupFloats * 2];
  uint64_t keep_[kGroups];
};

// ---- Encoding of wide groups: any tag

// Returns words with the tags of the floats in bits 7 and 15. They are right for floats that are not raw.
GRADLANE_INLINE __m256i tag_bits(__m256i not_zero, __m256i not_byte) {
  return _mm256_xor_si256(_mm256_srli_epi16(not_zero, 8), not_byte);
}

// The tags of 32 floats, and their payloads in memory.
struct WideGroup {
  alignas(32) uint8_t lanes[kGroupFloats * sizeof(float)];
  uint64_t tags;

  // Sets the payloads, each in the low bytes of its lane.
  GRADLANE_INLINE void set_lanes(Floats x) { store_group(reinterpret_cast<float*>(lanes), x); }

  // Sets the payloads: each lane becomes the lane of `raw`, or the word if the lane of `raw` is 0. Words are in the
  // order that results when two vectors of 32-bit lanes are packed.
  GRADLANE_INLINE void set_lanes(Floats raw, __m256i words_low, __m256i words_high) {
    const __m256i zero = _mm256_setzero_si256();
    set_lanes({{merge(raw.low.low, _mm256_unpacklo_epi16(words_low, zero)),
                merge(raw.low.high, _mm256_unpackhi_epi16(words_low, zero))},
               {merge(raw.high.low, _mm256_unpacklo_epi16(words_high, zero)),
                merge(raw.high.high, _mm256_unpackhi_epi16(words_high, zero))}});
  }

  // Sets the tags from bits 7 and 15 of words in the order of set_lanes().
  GRADLANE_INLINE void set_tags(__m256i low, __m256i high) {
    tags = join(_mm256_movemask_epi8(in_order(low)), _mm256_movemask_epi8(in_order(high)));
  }

  [[nodiscard]] bool fits(const Sink& sink) const { return sink.room() >= static_cast<ptrdiff_t>(payload_bytes(tags)); }

  // Restores the NaNs of x, because signalling ones may have become quiet.
  GRADLANE_INLINE void keep_nans(Floats x) {
    if (any_nan(x)) [[unlikely]] {
      set_lanes(
          map(load_group(reinterpret_cast<const float*>(lanes)), x, [](__m256 lane, __m256 v) GRADLANE_INLINE_LAMBDA {
            return _mm256_blendv_ps(lane, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
          }));
    }
  }

  // Writes the payload at `at`. It may also overwrite up to 16 bytes after the payload. Returns the end of the payload.
  GRADLANE_INLINE uint8_t* put(uint8_t* at) const {
    at = put_quads(at, 0);
    at = put_quads(at, 2);
    at = put_quads(at, 4);
    return put_quads(at, 6);
  }

  // Writes the payload, and no byte after it. Returns its end.
  [[gnu::noinline]] uint8_t* put_exactly(uint8_t* at) const noexcept {
    uint8_t buffer[kGroupFloats * sizeof(float) + 16];
    const auto bytes = static_cast<size_t>(put(buffer) - buffer);
    std::memcpy(at, buffer, bytes);
    return at + bytes;
  }

 private:
  static GRADLANE_INLINE __m256 merge(__m256 raw, __m256i words) {
    return _mm256_or_ps(raw, _mm256_castsi256_ps(words));
  }

  // Writes payloads 4i..4i+7.
  GRADLANE_INLINE uint8_t* put_quads(uint8_t* at, size_t i) const { return put_quad(put_quad(at, i), i + 1); }
  GRADLANE_INLINE uint8_t* put_quad(uint8_t* at, size_t i) const {
    const size_t key = reinterpret_cast<const uint8_t*>(&tags)[i];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                     _mm_shuffle_epi8(load16(lanes + 16 * i), load16(kPackLanes.control[key])));
    return at + kWidths.bytes[key];
  }
};

// A buffer for wide groups between two loops, for the same reason as WordsBatch.
struct WideBatch {
  static constexpr size_t kGroups = 8;
  static constexpr ptrdiff_t kMostBytes = kGroupFloats * sizeof(float);

  WideGroup group[kGroups];

  // Returns the number of groups to handle at a time, which fit whatever their tags are. Returns 0 if it is not certain
  // that one fits.
  static GRADLANE_INLINE size_t groups(size_t left, const Sink& sink) {
    const size_t fitting = sink.fitting(static_cast<size_t>(kMostBytes));
    if (fitting == 0) return sink.group_cost == 0 && sink.room() >= kMostBytes ? 1 : 0;
    return smaller(fitting, smaller(left, kGroups));
  }

  // Writes the first `count` groups, which must fit. Returns whether any of them has raw floats.
  GRADLANE_INLINE bool put(size_t count, Sink& sink, uint8_t* tags) const {
    uint64_t raw = 0;
    for (size_t i = 0; i < count; ++i) {
      uint8_t* const end = sink.room() >= kMostBytes + 16 ? group[i].put(sink.at) : group[i].put_exactly(sink.at);
      store_tags(tags + i * kTagBytes, group[i].tags);
      raw |= raw_tags(group[i].tags);
      sink.advance(static_cast<size_t>(end - sink.at));
    }
    return raw != 0;
  }
};

// ---- Decoding

// Payload that is not yet read.
struct Payload {
  // Memory for the rest of a block. reach() copies it here near the end of the block, so that loads may read past the
  // end.
  struct Spare {
    uint8_t bytes[2 * (kGroupFloats * sizeof(float) + 16)];
  };

  const uint8_t* at;
  const uint8_t* end;
  const uint8_t* readable = end;  // end of the bytes that loads may read; not before `end`

  [[nodiscard]] GRADLANE_INLINE bool has(size_t bytes) const { return end - at >= static_cast<ptrdiff_t>(bytes); }

  // Ensures that the next `bytes` bytes and 16 more can be read. `bytes` is the length of one group's payload, or the
  // most that it may be.
  GRADLANE_INLINE void reach(size_t bytes, Spare& spare) {
    if (readable - at >= static_cast<ptrdiff_t>(bytes + 16)) [[likely]]
      return;
    const auto left = static_cast<size_t>(end - at);
    std::memcpy(spare.bytes, at, left);
    at = spare.bytes;
    end = at + left;
    readable = at + sizeof spare.bytes;
  }
};

// The payloads of 32 floats, each in the high bytes of its lane; other bytes are 0.
struct Lanes {
  __m256i a, b, c, d;
};

GRADLANE_INLINE __m256i get_lanes(const uint8_t* tags, const uint8_t*& at) {
  const __m128i low = _mm_shuffle_epi8(load16(at), load16(kUnpackLanes.control[tags[0]]));
  at += kWidths.bytes[tags[0]];
  const __m128i high = _mm_shuffle_epi8(load16(at), load16(kUnpackLanes.control[tags[1]]));
  at += kWidths.bytes[tags[1]];
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

// A group of a block: its tags and the length of its payload.
struct Group {
  const uint8_t* tags;
  uint64_t word;
  size_t bytes;  // bytes of payload

  explicit GRADLANE_INLINE Group(const uint8_t* p) : tags(p), word(load_tags(p)), bytes(payload_bytes(word)) {}

  [[nodiscard]] GRADLANE_INLINE bool has_raw() const { return raw_tags(word) != 0; }
};

// Reads the payload of a group, and moves `at` to the first byte after it. The caller must have called reach().
GRADLANE_INLINE Lanes get_group(const uint8_t* tags, const uint8_t*& at) {
  Lanes lanes;
  lanes.a = get_lanes(tags, at);
  lanes.b = get_lanes(tags + 2, at);
  lanes.c = get_lanes(tags + 4, at);
  lanes.d = get_lanes(tags + 6, at);
  return lanes;
}

}  // namespace
}  // namespace gradlane
