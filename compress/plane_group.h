// plane_group.h - conversion of one group of any kind to bit planes and back; included by the kernels of every
// instruction set
//
// This is the specification in code. Kernels have shortcuts for full groups without escapes.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <bit>
#include <cmath>

#include "compress/planes.h"
#include "compress/scalar/elements.h"

namespace gradlane {
namespace {

// Transposes 8 x 8 bits: bit j of byte i becomes bit i of byte j (Hacker's Delight, 7-3).
constexpr uint64_t transpose_bits(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000cccc;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
  return x ^ t ^ t << 28;
}

// A group that is coded, but not yet written to a block.
struct CodedGroup {
  unsigned tag;
  Escape escape;                            // width, and mask of raw floats, whatever the tag is
  alignas(32) int16_t q[kGroupFloats];      // steps, 0 for raw floats, in any form that code() and put() agree on
  alignas(32) float rounded[kGroupFloats];  // floats rounded to the step; raw floats are sent from here

  [[nodiscard]] size_t bytes() const { return escape.words() * kPlaneBytes + (tag == kEscape ? kEscapeBytes : 0); }

  // Chooses the tag. q, the width of q and the mask of raw floats must be known. The group has `count` floats.
  void close(size_t count) {
    if (escape.words() > count) {
      for (size_t i = 0; i < count; ++i) {
        if ((escape.raw >> i & 1) == 0) rounded[i] += 0.0F;  // -0 becomes +0
      }
      escape = {0, ~uint32_t{0} >> (kGroupFloats - count)};
    }
    tag = escape.raw == 0 && escape.width < kEscape ? escape.width : kEscape;
  }

  // Writes the raw floats, and the escape if there is one.
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

// Operations on one group of 32 floats, one float at a time. Missing floats are 0. An instruction set may have its own
// version of this.
struct AnyGroup {
  // Rounds x to the nearest multiples of the step. Inf, NaN and magnitudes from p.exact on do not change.
  static void round(const CodecParams& p, const float* x, float* out) {
    for (size_t i = 0; i < kGroupFloats; ++i) {
      out[i] = std::fabs(x[i]) < p.exact ? std::nearbyintf(x[i] * p.steps_per_one) * p.step : x[i];
    }
  }

  // Computes a = add(a, b) (see elements.h).
  static void add_to(float* a, const float* b) {
    for (size_t i = 0; i < kGroupFloats; ++i) a[i] = add(a[i], b[i]);
  }

  // Computes the residual, x - `rounded`. It is never -0, and it is 0 for Inf and NaN.
  static void subtract(const float* x, const float* rounded, float* out) {
    for (size_t i = 0; i < kGroupFloats; ++i) out[i] = std::isfinite(x[i]) ? x[i] - rounded[i] + 0.0F : 0.0F;
  }

  static void code(const CodecParams& p, const float* x, size_t count, CodedGroup& out) {
    round(p, x, out.rounded);
    out.escape = {0, 0};
    uint32_t bits = 0;  // bits in which any q differs from its sign, shifted up by one for the sign
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

  // Writes the payload at `at`, and the escape, if there is one, so that it ends at `escapes`.
  static void put(const CodedGroup& group, uint8_t* at, uint8_t* escapes) {
    uint8_t values[2][kGroupFloats];
    uint8_t planes[2][kGroupFloats];  // planes 0 to 7, and 8 to 15
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

  // Decodes a group whose payload is complete. Missing floats get arbitrary values.
  static void get(const CodecParams& p, Escape escape, const uint8_t* at, float* x) {
    uint8_t values[2][kGroupFloats];
    uint8_t planes[2 * kGroupFloats];  // planes 0 to 7, and 8 to 15
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
  // Convert the same byte of 32 steps to eight planes, and back: 8 x 8 bits at a time.
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
