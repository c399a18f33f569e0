// plane_group.h - one group of any kind, to bit planes and back; included by the kernels of every instruction set
//
// This is the specification in code. Kernels have shortcuts for full groups without escapes.
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include <bit>
#include <cmath>

#include "compress/planes.h"
#include "compress/scalar/elements.h"

namespace gradlane {
namespace {

// Bit j of byte i becomes bit i of byte j (Hacker's Delight, 7-3).
constexpr uint64_t transpose_bits(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000cccc;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
  return x ^ t ^ t << 28;
}

// A group on its way into a block.
struct CodedGroup {
  unsigned tag;
  Escape escape;                            // the width, and what is raw, for any tag
  alignas(32) int16_t q[kGroupFloats];      // 0 of what is raw; in any form that code() and put() agree on
  alignas(32) float rounded[kGroupFloats];  // where it is, what travels

  [[nodiscard]] size_t bytes() const { return escape.words() * kPlaneBytes + (tag == kEscape ? kEscapeBytes : 0); }

  // Chooses the tag, when q and what is raw are known, and the width of q. `count` floats are there.
  void close(size_t count) {
    if (escape.words() > count) {
      for (size_t i = 0; i < count; ++i) {
        if ((escape.raw >> i & 1) == 0) rounded[i] += 0.0F;  // -0 becomes +0
      }
      escape = {0, ~uint32_t{0} >> (kGroupFloats - count)};
    }
    tag = escape.raw == 0 && escape.width < kEscape ? escape.width : kEscape;
  }

  // Raw floats, and what the tag does not say.
  void put_raw(uint8_t* at, uint8_t* escapes) const {
    for (uint32_t left = escape.raw; left != 0; left &= left - 1, at += sizeof(float)) {
      std::memcpy(at, rounded + std::countr_zero(left), sizeof(float));
    }
    if (tag == kEscape) put_escape(escapes, escape);
  }
};

inline void get_raw(Escape escape, const uint8_t* at, float* x) {
  for (uint32_t left = escape.raw; left != 0; left &= left - 1, at += sizeof(float)) {
    std::memcpy(x + std::countr_zero(left), at, sizeof(float));
  }
}

// The work on one group of 32 floats, of which missing ones are 0, one by one. An instruction set may have its own.
struct AnyGroup {
  // The multiples of the step nearest to x; x itself where there is none, or it is Inf or NaN.
  static void round(const CodecParams& p, const float* x, float* out) {
    for (size_t i = 0; i < kGroupFloats; ++i) {
      out[i] = std::fabs(x[i]) < p.exact ? std::nearbyintf(x[i] * p.steps_per_one) * p.step : x[i];
    }
  }

  // a = add(a, b) (see elements.h)
  static void add_to(float* a, const float* b) {
    for (size_t i = 0; i < kGroupFloats; ++i) a[i] = add(a[i], b[i]);
  }

  // What is left over of x, which comes to `rounded`; never -0.
  static void subtract(const float* x, const float* rounded, float* out) {
    for (size_t i = 0; i < kGroupFloats; ++i) out[i] = std::isfinite(x[i]) ? x[i] - rounded[i] + 0.0F : 0.0F;
  }

  static void code(const CodecParams& p, const float* x, size_t count, CodedGroup& out) {
    round(p, x, out.rounded);
    out.escape = {0, 0};
    uint32_t bits = 0;  // those of q that differ from its sign, and one more
    for (size_t i = 0; i < kGroupFloats; ++i) {
      const float steps = out.rounded[i] * p.steps_per_one;
      const bool fits = std::fabs(x[i]) < p.exact && -32768 <= steps && steps <= 32767;
      const int32_t q = fits ? static_cast<int32_t>(steps) : 0;
      out.q[i] = static_cast<int16_t>(q);
      bits |= static_cast<uint32_t>(q << 1 ^ q >> 31);
      out.escape.raw |= static_cast<uint32_t>(!fits) << i;
    }
    out.escape.width = static_cast<unsigned>(std::bit_width(bits));
    out.close(count);
  }

  // Writes payload at `at`, and what the tag does not say in front of `escapes`.
  static void put(const CodedGroup& group, uint8_t* at, uint8_t* escapes) {
    uint8_t values[2][kGroupFloats];
    uint8_t planes[2][kGroupFloats];  // 0 to 7, 8 to 15
    for (size_t i = 0; i < kGroupFloats; ++i) {
      values[0][i] = static_cast<uint8_t>(group.q[i]);
      values[1][i] = static_cast<uint8_t>(static_cast<uint16_t>(group.q[i]) >> 8);
    }
    transpose_to_planes(values[0], planes[0]);
    transpose_to_planes(values[1], planes[1]);
    const size_t bytes = group.escape.width * kPlaneBytes;
    std::memcpy(at, planes, bytes);
    group.put_raw(at + bytes, escapes);
  }

  // The floats of a group whose payload is all there. Of missing ones anything.
  static void get(const CodecParams& p, Escape escape, const uint8_t* at, float* x) {
    uint8_t values[2][kGroupFloats];
    uint8_t planes[2 * kGroupFloats];  // 0 to 7, 8 to 15
    const size_t bytes = escape.width * kPlaneBytes;
    std::memcpy(planes, at, bytes);
    // Planes above the width are copies of the sign.
    const uint32_t sign = escape.width == 0 ? 0 : load_plane(at + bytes - kPlaneBytes);
    for (size_t j = escape.width; j < kMostPlanes; ++j) store_plane(planes + j * kPlaneBytes, sign);
    transpose_from_planes(planes, values[0]);
    transpose_from_planes(planes + kGroupFloats, values[1]);
    for (size_t i = 0; i < kGroupFloats; ++i) {
      const auto q = static_cast<int16_t>(static_cast<uint16_t>(values[0][i] | values[1][i] << 8));
      x[i] = static_cast<float>(q) * p.step;
    }
    get_raw(escape, at + bytes, x);
  }

 private:
  // Eight bytes of each of four words become one byte of each of eight words, or the other way round.
  static void transpose_to_planes(const uint8_t* values, uint8_t* planes) {
    for (size_t k = 0; k < 4; ++k) {
      uint64_t word;
      std::memcpy(&word, values + 8 * k, sizeof word);
      word = transpose_bits(word);
      for (size_t j = 0; j < 8; ++j) planes[4 * j + k] = static_cast<uint8_t>(word >> (8 * j));
    }
  }
  static void transpose_from_planes(const uint8_t* planes, uint8_t* values) {
    for (size_t k = 0; k < 4; ++k) {
      uint64_t word = 0;
      for (size_t j = 0; j < 8; ++j) word |= static_cast<uint64_t>(planes[4 * j + k]) << (8 * j);
      word = transpose_bits(word);
      std::memcpy(values + 8 * k, &word, sizeof word);
    }
  }
};

}  // namespace
}  // namespace gradlane
