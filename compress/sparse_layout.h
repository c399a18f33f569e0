// sparse_layout.h - sizes of blocks of sparse records; included by the kernels of every instruction set, and by rows
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

constexpr size_t kRecordFloats = 256;
// Instead of the number of places: they are a bitmap.
constexpr uint8_t kBitmap = 255;
// Bits of a value that is a number of steps, at most; and what stands in their place if the values are fp32.
constexpr unsigned kMostWidth = 25;
constexpr unsigned kWholeFloat = 32;

constexpr size_t bitmap_bytes(size_t floats) { return (floats + 7) / 8; }
constexpr size_t value_bytes(size_t count, unsigned width) { return (count * width + 7) / 8; }

// Of a record: the bitmap of all of its floats, and they themselves.
constexpr size_t longest_record(size_t floats, bool lattice) {
  return 1 + bitmap_bytes(floats) + (lattice ? 1 : 0) + floats * sizeof(float);
}

constexpr size_t sparse_max_bytes(const CodecArguments& arguments, size_t floats) {
  const bool lattice = arguments.value_bits != 0;
  const size_t rest = floats % kRecordFloats;
  return floats / kRecordFloats * longest_record(kRecordFloats, lattice) +
         (rest == 0 ? 0 : longest_record(rest, lattice));
}

// Nothing but zeros.
constexpr size_t sparse_least_bytes(const CodecArguments&, size_t floats) {
  return floats / kRecordFloats + (floats % kRecordFloats == 0 ? 0 : 1);
}

}  // namespace
}  // namespace gradlane
