// chunk_layout.h - lengths of blocks of chunks; included by the kernels of every instruction set, and by their rows
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

// A header of NaN says that codes tell what is not finite, in two bits at least.
constexpr unsigned kEscapeBits = 2;

constexpr unsigned escape_bits(unsigned bits) { return bits < kEscapeBits ? kEscapeBits : bits; }

constexpr size_t code_bytes(size_t floats, unsigned bits) { return (floats * bits + 7) / 8; }

// Of chunks with so many floats as headers and codes of so many bits.
constexpr size_t chunks_bytes(size_t chunk, size_t heads, unsigned bits, size_t floats) {
  const size_t last = floats % chunk;
  return floats / chunk * (heads * sizeof(float) + code_bytes(chunk, bits)) +
         (last != 0 ? heads * sizeof(float) + code_bytes(last, bits) : 0);
}

}  // namespace
}  // namespace gradlane
