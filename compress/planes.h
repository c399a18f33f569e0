// planes.h - index arithmetic of blocks in bit planes; included by the kernels of every instruction set
//
//     tags, 4 bits a group | planes and raw floats, by group | escapes, 5 bytes each, that of the first group last
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

constexpr unsigned kEscape = 15;      // tag of an escaped group; other tags are widths
constexpr unsigned kMostPlanes = 16;  // most planes of a group
constexpr size_t kPlaneBytes = 4;     // bytes of a plane, which has one bit of each float of a group
constexpr size_t kEscapeBytes = 5;    // width, and mask of raw floats

constexpr size_t plane_tag_bytes(size_t groups) { return groups / 2 + groups % 2; }

constexpr size_t plane_least_bytes(size_t floats) { return plane_tag_bytes(groups_of(floats)); }

constexpr size_t plane_max_bytes(size_t floats) {
  return plane_least_bytes(floats) + groups_of(floats) * kEscapeBytes + floats * sizeof(float);
}

// Returns how many of `room` bytes an encoder may use, as usable_room() of layout.h does for tagged blocks.
constexpr size_t usable_plane_room(size_t floats, size_t room) {
  return room >= plane_max_bytes(floats) ? room : smaller(room, kMaxPacket);
}

inline unsigned plane_tag(const uint8_t* tags, size_t group) { return tags[group / 2] >> (group % 2 * 4) & 15; }

// Sets the tag of a group. Tags must be set in the order of the groups, because an even group clears the other half of
// its byte.
inline void set_plane_tag(uint8_t* tags, size_t group, unsigned tag) {
  uint8_t& at = tags[group / 2];
  at = static_cast<uint8_t>(group % 2 == 0 ? tag : at | tag << 4);
}

inline uint32_t load_plane(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}
inline void store_plane(uint8_t* p, uint32_t word) { std::memcpy(p, &word, sizeof word); }

// Width and raw floats of a group, which an escape states if the tag cannot.
struct Escape {
  unsigned width;
  uint32_t raw;  // a bit for each float that is stored as fp32

  [[nodiscard]] size_t words() const { return width + static_cast<size_t>(__builtin_popcount(raw)); }
};

// Read and write the escape that ends at `end`. The next escape lies before it. put_escape() returns where that next
// one ends.
inline Escape load_escape(const uint8_t* end) { return {end[-5], load_plane(end - 4)}; }
inline uint8_t* put_escape(uint8_t* end, Escape escape) {
  end[-5] = static_cast<uint8_t>(escape.width);
  store_plane(end - 4, escape.raw);
  return end - kEscapeBytes;
}

// Totals over the tags of some groups.
struct PlaneTags {
  size_t words = 0;    // number of planes of groups whose tag is a width
  size_t escapes = 0;  // number of groups whose tag is kEscape
};

// Adds the tags of 16 groups to `sum`.
GRADLANE_INLINE void add_tags(uint64_t word, PlaneTags& sum) {
  constexpr uint64_t kOnes = 0x1111111111111111;
  constexpr uint64_t kHalves = 0x0f0f0f0f0f0f0f0f;
  const uint64_t escapes = word & word >> 1 & word >> 2 & word >> 3 & kOnes;
  word &= ~(escapes * 15);
  sum.words += ((word & kHalves) + (word >> 4 & kHalves)) * 0x0101010101010101 >> 56;  // at most 16 * 14
  sum.escapes += static_cast<size_t>(__builtin_popcountll(escapes));
}

// Returns the totals of groups [0, groups) of a block that ends at `end`.
inline PlaneTags sum_tags(const uint8_t* tags, size_t groups, const uint8_t* end) {
  PlaneTags sum;
  uint64_t word;
  for (; groups >= 16; groups -= 16, tags += sizeof word) {
    std::memcpy(&word, tags, sizeof word);
    add_tags(word, sum);
  }
  if (groups == 0) return sum;
  if (end - tags >= static_cast<ptrdiff_t>(sizeof word)) [[likely]] {
    std::memcpy(&word, tags, sizeof word);
  } else {
    word = 0;
    for (size_t i = 0; i < plane_tag_bytes(groups); ++i) word |= uint64_t{tags[i]} << (8 * i);
  }
  add_tags(word & ~uint64_t{0} >> (64 - 4 * groups), sum);
  return sum;
}

// Checks the tags and escapes of a block, without its payload. Sets `length` to the length that they announce; the
// caller must compare it with `bytes`.
inline Status check_plane_tags(const uint8_t* block, size_t bytes, size_t floats, size_t& length) {
  const size_t groups = groups_of(floats);
  const size_t tag_bytes = plane_tag_bytes(groups);
  if (bytes < tag_bytes) return Status::kShort;
  if (groups % 2 != 0 && block[tag_bytes - 1] >> 4 != 0) return Status::kBadTail;
  const PlaneTags sum = sum_tags(block, groups, block + bytes);
  length = tag_bytes + sum.words * kPlaneBytes + sum.escapes * kEscapeBytes;
  if (sum.escapes == 0) return Status::kOk;
  if (bytes < length) return Status::kShort;
  const uint8_t* at = block + bytes;
  for (size_t i = 0; i < sum.escapes; ++i, at -= kEscapeBytes) {
    const Escape escape = load_escape(at);
    if (escape.width > kMostPlanes || escape.words() > kGroupFloats) return Status::kBadEscape;
    length += escape.words() * kPlaneBytes;
  }
  // The latest escape that was read belongs to the last escaped group.
  const size_t rest = floats % kGroupFloats;
  const bool last_escapes = rest != 0 && plane_tag(block, groups - 1) == kEscape;
  if (last_escapes && load_escape(at + kEscapeBytes).raw >> rest != 0) return Status::kBadTail;
  return Status::kOk;
}

inline Status validate_planes(const uint8_t* block, size_t bytes, size_t floats) {
  size_t length = 0;
  const Status status = check_plane_tags(block, bytes, floats, length);
  return status == Status::kOk ? compare_length(bytes, length) : status;
}

}  // namespace
}  // namespace gradlane
