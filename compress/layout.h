// layout.h - groups, and index arithmetic of tagged blocks; included by the kernels of every instruction set
//
// planes.h has the index arithmetic of blocks in bit planes.
//
// Everything is in an unnamed namespace on purpose: each translation unit gets its own copy, compiled for its own
// instruction set, and the linker has nothing to merge.
#pragma once

#include <cstring>

#include "compress/kernels.h"

#ifdef __FAST_MATH__
#error "gradlane needs IEEE arithmetic: never compile it with -ffast-math"
#endif

// Marks code that must become part of the loop that calls it. With AddressSanitizer's checks such loops would take
// minutes to compile, so the marks do nothing there.
#if defined(__SANITIZE_ADDRESS__)
#define GRADLANE_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRADLANE_SANITIZED
#endif
#endif
#ifdef GRADLANE_SANITIZED
#define GRADLANE_INLINE inline
#define GRADLANE_INLINE_LAMBDA
#else
#define GRADLANE_INLINE __attribute__((always_inline)) inline
#define GRADLANE_INLINE_LAMBDA __attribute__((always_inline))
#endif

namespace gradlane {
namespace {

// Mask of the low bits of all tags in a tag word. The tag of float i is bits 2i and 2i+1.
constexpr uint64_t kTagLow = 0x5555555555555555;

constexpr size_t groups_of(size_t floats) { return floats / kGroupFloats + (floats % kGroupFloats != 0 ? 1 : 0); }

constexpr size_t tagged_max_bytes(size_t floats) { return groups_of(floats) * kTagBytes + floats * sizeof(float); }

constexpr size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// Returns how many of `room` bytes an encoder may use: see Codec::encode().
constexpr size_t usable_room(size_t floats, size_t room) {
  if (room >= tagged_max_bytes(floats)) return room;
  return smaller(room, kMaxPacket);
}

// Returns whether the last tag word has set bits that belong to floats after the last one.
constexpr bool bad_tail(uint64_t last_word, size_t floats) {
  const size_t used = floats % kGroupFloats;
  return used != 0 && (last_word >> (2 * used)) != 0;
}

inline uint64_t load_tags(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

inline void store_tags(uint8_t* p, uint64_t word) { std::memcpy(p, &word, sizeof word); }

// Returns a bit, at the low bit of its tag, for each float of a group that has tag 3.
inline uint64_t raw_tags(uint64_t tags) { return tags & (tags >> 1) & kTagLow; }

// Returns the payload bytes of one group: 0, 1, 2, 4 for tags 0, 1, 2, 3.
inline size_t payload_bytes(uint64_t tags) {
  const uint64_t low = tags & kTagLow;
  const uint64_t high = (tags >> 1) & kTagLow;
  return static_cast<size_t>(__builtin_popcountll(low) + 2 * __builtin_popcountll(high) +
                             __builtin_popcountll(low & high));
}

// Returns the payload bytes of `groups` groups.
inline size_t payload_bytes(const uint8_t* tags, size_t groups) {
  size_t bytes = 0;
  for (size_t g = 0; g < groups; ++g) bytes += payload_bytes(load_tags(tags + g * kTagBytes));
  return bytes;
}

// Checks a block without reading its payload: it is long enough for its tags, and no tag bit is set after the last
// float.
inline Status check_tags(const uint8_t* block, size_t bytes, size_t floats) {
  const size_t groups = groups_of(floats);
  if (bytes / kTagBytes < groups) return Status::kShort;  // no product, which might overflow: `floats` may be anything
  if (groups != 0 && bad_tail(load_tags(block + (groups - 1) * kTagBytes), floats)) return Status::kBadTail;
  return Status::kOk;
}

inline Status compare_length(size_t have, size_t want) {
  return have == want ? Status::kOk : have < want ? Status::kShort : Status::kLong;
}

// Compares the length with that of `floats` words of `width` bytes each. `floats` may be any number.
inline Status compare_words(size_t bytes, size_t floats, size_t width) {
  if (bytes / width != floats) return bytes / width < floats ? Status::kShort : Status::kLong;
  return bytes % width == 0 ? Status::kOk : Status::kLong;
}

}  // namespace
}  // namespace gradlane
