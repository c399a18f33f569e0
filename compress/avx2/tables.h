// tables.h - shuffle controls that move payload bytes, looked up by tags (included by avx2.cc only)
//
// A byte of a tag word holds four tags. So tables of 256 entries say where the payload bytes of four floats go (the
// method of streamvbyte). PDEP and PEXT would need no tables, but take hundreds of cycles on Zen 1 and 2.
#pragma once

#include <immintrin.h>

#include "compress/layout.h"

namespace gradlane {
namespace {

constexpr uint8_t kZeroByte = 0x80;  // index of PSHUFB that gives a byte of 0

constexpr unsigned tag_of(unsigned quad_tags, unsigned i) { return (quad_tags >> (2 * i)) & 3; }
constexpr unsigned width_of(unsigned tag) { return tag == 3 ? 4 : tag; }

// Numbers by the value of a byte: payload bytes of four tags (kWidths), or set bits (kCounts).
struct WidthTable {
  uint8_t bytes[256];
};

constexpr WidthTable make_widths() {
  WidthTable t{};
  for (unsigned tags = 0; tags < 256; ++tags) {
    unsigned bytes = 0;
    for (unsigned i = 0; i < 4; ++i) bytes += width_of(tag_of(tags, i));
    t.bytes[tags] = static_cast<uint8_t>(bytes);
  }
  return t;
}

// Counts the set bits of each value of a byte.
constexpr WidthTable make_counts() {
  WidthTable t{};
  for (unsigned mask = 0; mask < 256; ++mask) t.bytes[mask] = static_cast<uint8_t>(__builtin_popcount(mask));
  return t;
}

struct LaneTable {
  alignas(64) uint8_t control[256][16];
};

// Makes the controls that move payloads from the low bytes of four 32-bit lanes next to each other.
constexpr LaneTable make_pack_lanes() {
  LaneTable t{};
  for (unsigned tags = 0; tags < 256; ++tags) {
    unsigned at = 0;
    for (unsigned i = 0; i < 4; ++i) {
      for (unsigned k = 0; k < width_of(tag_of(tags, i)); ++k) t.control[tags][at++] = static_cast<uint8_t>(4 * i + k);
    }
    while (at < 16) t.control[tags][at++] = kZeroByte;
  }
  return t;
}

// Makes the controls that move adjacent payloads to the high bytes of four 32-bit lanes, with 0 elsewhere.
constexpr LaneTable make_unpack_lanes() {
  LaneTable t{};
  for (unsigned tags = 0; tags < 256; ++tags) {
    unsigned from = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned width = width_of(tag_of(tags, i));
      for (unsigned k = 0; k < 4; ++k) {
        t.control[tags][4 * i + k] = static_cast<uint8_t>(k >= 4 - width ? from++ : kZeroByte);
      }
    }
  }
  return t;
}

// Controls that move the bytes that a mask keeps, out of 8, next to each other. A load of an entry reads 16 bytes, of
// which 8 count. So there is one more entry after the last one.
struct CompressTable {
  alignas(64) uint8_t control[256 + 1][8];
};

constexpr CompressTable make_compress() {
  CompressTable t{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned at = 0;
    for (unsigned i = 0; i < 8; ++i) {
      if ((mask >> i & 1) != 0) t.control[mask][at++] = static_cast<uint8_t>(i);
    }
    while (at < 8) t.control[mask][at++] = kZeroByte;
  }
  return t;
}

constexpr WidthTable kWidths = make_widths();
constexpr WidthTable kCounts = make_counts();
constexpr LaneTable kPackLanes = make_pack_lanes();
constexpr LaneTable kUnpackLanes = make_unpack_lanes();
constexpr CompressTable kCompress = make_compress();

GRADLANE_INLINE __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

}  // namespace
}  // namespace gradlane
