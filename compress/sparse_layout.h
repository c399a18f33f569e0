// sparse_layout.h - sizes of blocks of sparse records; included by the kernels of every instruction set, and by
// rows/sparse.h
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

constexpr size_t kRecordFloats = 256;
// The first byte of a record is the number of places in its list. This value means that a bitmap follows instead.
constexpr uint8_t kBitmap = 255;
// Largest width, in bits, of values that are numbers of steps; and the width that stands for fp32 values.
constexpr unsigned kMostWidth = 25;
constexpr unsigned kWholeFloat = 32;

constexpr size_t bitmap_bytes(size_t floats) { return (floats + 7) / 8; }
constexpr size_t value_bytes(size_t count, unsigned width) { return (count * width + 7) / 8; }

// Returns the bytes of the longest record: one with a bitmap and with all its floats as fp32.
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
