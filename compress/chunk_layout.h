// chunk_layout.h - lengths of blocks of chunks; included by the kernels of every instruction set, and by rows/chunks.h
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

// Least bits of a code in a chunk that has Inf or NaN. The header of such a chunk is NaN, and its codes say which
// floats are Inf, -Inf or NaN.
constexpr unsigned kEscapeBits = 2;

constexpr unsigned escape_bits(unsigned bits) { return bits < kEscapeBits ? kEscapeBits : bits; }

constexpr size_t code_bytes(size_t floats, unsigned bits) { return (floats * bits + 7) / 8; }

// Returns the bytes of all chunks, of `chunk` floats each (the last one may be shorter). A chunk has `heads` floats of
// header, and codes of `bits` bits.
constexpr size_t chunks_bytes(size_t chunk, size_t heads, unsigned bits, size_t floats) {
  const size_t last = floats % chunk;
  return floats / chunk * (heads * sizeof(float) + code_bytes(chunk, bits)) +
         (last != 0 ? heads * sizeof(float) + code_bytes(last, bits) : 0);
}

}  // namespace
}  // namespace gradlane
