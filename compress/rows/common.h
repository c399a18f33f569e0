// common.h - parts of which rows of the table of codecs are made; only codec_table.cc includes it and the rest of rows/
// (set-up)
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "compress/codec_table.h"
#include "compress/layout.h"

namespace gradlane {
namespace {

template <size_t kWidth>
constexpr size_t flat_bytes(const CodecArguments&, size_t floats) {
  return floats * kWidth;
}

// Returns the bytes of a block in a layout that is the same for all arguments.
template <size_t (*of)(size_t floats)>
constexpr size_t bytes_of(const CodecArguments&, size_t floats) {
  return of(floats);
}

// Swaps two adjacent parts in place, of `first` and `second` bytes.
void swap_parts(uint8_t* at, size_t first, size_t second) noexcept {
  if (first == 0 || second == 0) return;
  std::array<uint8_t, kMaxPacket / 2> shorter;  // enough for the shorter part of any packet
  if (second <= first && second <= shorter.size()) {
    std::memcpy(shorter.data(), at + first, second);
    std::memmove(at + second, at, first);
    std::memcpy(at, shorter.data(), second);
  } else if (first <= shorter.size()) {
    std::memcpy(shorter.data(), at, first);
    std::memmove(at, at + first, second);
    std::memcpy(at + second, shorter.data(), first);
  } else {
    std::rotate(at, at + first, at + first + second);
  }
}

// Returns the parameters of a lattice: multiples of 2^exponent.
inline CodecParams lattice(unsigned bits, int exponent) {
  CodecParams params;
  params.bits = bits;
  params.split = bits / 2;
  params.step = std::ldexp(1.0F, exponent);
  params.steps_per_one = std::ldexp(1.0F, -exponent);
  params.magic = 1.5F * 0x1p23F * params.step;
  params.exact = 0x1p23F * params.step;
  return params;
}

constexpr unsigned bits_of(const CodecArguments& arguments) { return arguments.bits & ~unsigned{kOptionBit}; }

inline CodecError bound_error(const CodecArguments& arguments) {
  return {.absolute = std::ldexp(1.0, -static_cast<int>(bits_of(arguments)))};
}
inline CodecError unbounded(const CodecArguments&) { return {.bounded = false}; }

}  // namespace
}  // namespace gradlane
