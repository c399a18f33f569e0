// sparse_layout.h - sizes of blocks of sparse records; included by the kernels of every instruction set, and by
// rows/sparse.h
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

constexpr size_t kRecordFloats = 256;
// Value of the byte that has the number of places, if they are a bitmap instead of a list.
constexpr uint8_t kBitmap = 255;
// Most bits of a value that is a number of steps; and the number that stands for fp32 values.
constexpr unsigned kMostWidth = 25;
constexpr unsigned kWholeFloat = 32;

constexpr size_t bitmap_bytes(size_t floats) { return (floats + 7) / 8; }
constexpr size_t value_bytes(size_t count, unsigned width) { return (count * width + 7) / 8; }

// Returns the most bytes of a record: those of a bitmap and of all its floats.
constexpr size_t longest_record(size_t floats, bool lattice) {
  return 1 + bitmap_bytes(floats) + (lattice ? 1 : 0) + floats * sizeof(float);
}

constexpr size_t sparse_max_bytes(const CodecArguments& arguments, size_t floats) {
  const bool lattice = arguments.value_bits != 0;
  const size_t rest = floats % kRecordFloats;
  return floats / kRecordFloats * longest_record(kRecordFloats, lattice) +
         (rest == 0 ? 0 : longest_record(rest, lattice));
}

// Returns the bytes of a block that has only zeros.
constexpr size_t sparse_least_bytes(const CodecArguments&, size_t floats) {
  return floats / kRecordFloats + (floats % kRecordFloats == 0 ? 0 : 1);
}

}  // namespace
}  // namespace gradlane
