// payload.h - 32 floats at a time: packing and unpacking of payload by tags (included by avx2.cc only)
//
// On their way out, floats become 32 *words* of 16 bits: all that tags 0, 1 and 2 can say. A group that needs a tag 3
// takes the wide path, where each float has a 32-bit lane. On their way in all payloads come in 32-bit lanes.
#pragma once

#include "compress/avx2/vectors.h"
#include "compress/passes.h"

namespace gradlane {
namespace {

// ---- Out, narrow groups: tags 0, 1, 2

// Words on their way out, in the order in which two vectors of 32-bit lanes are packed: words 0..3, 8..11, 4..7, 12..15
// in each half. Two bits for each word, in the same order, say which of its bytes are kept: none (tag 0), one of them
// (tag 1) or both (tag 2).
struct Words {
  __m256i low, high;
  uint64_t keep;
};

GRADLANE_INLINE uint64_t join(int low, int high) {
  return static_cast<uint32_t>(low) | static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32;
}

// The tag word of Words::keep.
GRADLANE_INLINE uint64_t tags_of(uint64_t keep) {
  const uint64_t tags = (keep & kTagLow) + (keep >> 1 & kTagLow);
  const uint64_t swap = (tags ^ tags >> 8) & 0x0000ff000000ff00;
  return tags ^ swap ^ swap << 8;
}

// Narrow groups between two loops, the one that finds their words and the one that puts them. A loop that did both
// would make each group one long chain of latencies, of which too few fit into the scheduler of a core.
class WordsBatch {
 public:
  static constexpr size_t kGroups = 16;

  // Groups to do at a time: all of their payload must fit, whatever it is, and the 8 bytes that put_quad() may write
  // behind it, for which fitting() leaves the room of a tag word.
  static GRADLANE_INLINE size_t groups(size_t left, const Sink& sink) {
    static_assert(kTagBytes >= 8);
    return smaller(sink.fitting(kGroupFloats * 2), smaller(left, kGroups));
  }

  GRADLANE_INLINE void set(size_t i, Words w) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(words_[i]), w.low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(words_[i] + 32), w.high);
    keep_[i] = w.keep;
  }

  // Puts the first groups.
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
  // Puts words 4i..4i+3, in the order of Words.
  static GRADLANE_INLINE uint8_t* put_quad(uint8_t* at, const uint8_t* words, const uint8_t* keep, size_t i) {
    const __m128i quad = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(words + 8 * i));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(at), _mm_shuffle_epi8(quad, load16(kCompress.control[keep[i]])));
    return at + kCounts.bytes[keep[i]];
  }

  alignas(32) uint8_t words_[kGroups][kGroupFloats * 2];
  uint64_t keep_[kGroups];
};

// ---- Out, wide groups: any tag

// Words whose bits 7 and 15 are the tags of floats that are not raw.
GRADLANE_INLINE __m256i tag_bits(__m256i not_zero, __m256i not_byte) {
  return _mm256_xor_si256(_mm256_srli_epi16(not_zero, 8), not_byte);
}

// The tags of 32 floats, and their payloads in memory.
struct WideGroup {
  alignas(32) uint8_t lanes[kGroupFloats * sizeof(float)];
  uint64_t tags;

  // Payloads in the low bytes of their lanes.
  GRADLANE_INLINE void set_lanes(Floats x) { store_group(reinterpret_cast<float*>(lanes), x); }

  // The same: `raw`, and words where raw has 0, in the order in which two vectors of 32-bit lanes are packed.
  GRADLANE_INLINE void set_lanes(Floats raw, __m256i words_low, __m256i words_high) {
    const __m256i zero = _mm256_setzero_si256();
    set_lanes({{merge(raw.low.low, _mm256_unpacklo_epi16(words_low, zero)),
                merge(raw.low.high, _mm256_unpackhi_epi16(words_low, zero))},
               {merge(raw.high.low, _mm256_unpacklo_epi16(words_high, zero)),
                merge(raw.high.high, _mm256_unpackhi_epi16(words_high, zero))}});
  }

  // Words with the tags in bits 7 and 15, in the same order.
  GRADLANE_INLINE void set_tags(__m256i low, __m256i high) {
    tags = join(_mm256_movemask_epi8(in_order(low)), _mm256_movemask_epi8(in_order(high)));
  }

  [[nodiscard]] bool fits(const Sink& sink) const { return sink.room() >= static_cast<ptrdiff_t>(payload_bytes(tags)); }

  // Puts back the NaNs of x, in case that they were signalling ones.
  GRADLANE_INLINE void keep_nans(Floats x) {
    if (any_nan(x)) [[unlikely]] {
      set_lanes(
          map(load_group(reinterpret_cast<const float*>(lanes)), x, [](__m256 lane, __m256 v) GRADLANE_INLINE_LAMBDA {
            return _mm256_blendv_ps(lane, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
          }));
    }
  }

  // Puts the payload at `at`, and up to 16 bytes behind it. Returns where it ends.
  GRADLANE_INLINE uint8_t* put(uint8_t* at) const {
    at = put_quads(at, 0);
    at = put_quads(at, 2);
    at = put_quads(at, 4);
    return put_quads(at, 6);
  }

  // The same, to the byte.
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

  // Payloads 4i..4i+7.
  GRADLANE_INLINE uint8_t* put_quads(uint8_t* at, size_t i) const { return put_quad(put_quad(at, i), i + 1); }
  GRADLANE_INLINE uint8_t* put_quad(uint8_t* at, size_t i) const {
    const size_t key = reinterpret_cast<const uint8_t*>(&tags)[i];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                     _mm_shuffle_epi8(load16(lanes + 16 * i), load16(kPackLanes.control[key])));
    return at + kWidths.bytes[key];
  }
};

// Wide groups between two loops, for the same reason as narrow ones.
struct WideBatch {
  static constexpr size_t kGroups = 8;
  static constexpr ptrdiff_t kMostBytes = kGroupFloats * sizeof(float);

  WideGroup group[kGroups];

  // Groups to do at a time: all of them fit, whatever they are. 0 if that cannot be said of one.
  static GRADLANE_INLINE size_t groups(size_t left, const Sink& sink) {
    const size_t fitting = sink.fitting(static_cast<size_t>(kMostBytes));
    if (fitting == 0) return sink.group_cost == 0 && sink.room() >= kMostBytes ? 1 : 0;
    return smaller(fitting, smaller(left, kGroups));
  }

  // Puts the first groups, for which there is room. Says whether any of them has raw floats.
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

// ---- In

// Payload not yet read.
struct Payload {
  // What is left near the end of a block moves here, so that loads may reach behind it.
  struct Spare {
    uint8_t bytes[2 * (kGroupFloats * sizeof(float) + 16)];
  };

  const uint8_t* at;
  const uint8_t* end;
  const uint8_t* readable = end;  // from `end` on

  [[nodiscard]] GRADLANE_INLINE bool has(size_t bytes) const { return end - at >= static_cast<ptrdiff_t>(bytes); }

  // Makes sure that the next `bytes`, those of one group or the most that it may have, and 16 behind them can be read.
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

// Payloads of 32 floats, in the high bytes of their lanes, with 0 elsewhere.
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

// A group of a block, by its tags.
struct Group {
  const uint8_t* tags;
  uint64_t word;
  size_t bytes;  // of payload

  explicit GRADLANE_INLINE Group(const uint8_t* p) : tags(p), word(load_tags(p)), bytes(payload_bytes(word)) {}

  [[nodiscard]] GRADLANE_INLINE bool has_raw() const { return raw_tags(word) != 0; }
};

// The payload of a group, for which reach() has been called; `at` moves behind it.
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
