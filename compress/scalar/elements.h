// elements.h - what each codec does with one float: the specification (included by scalar.cc only)
//
// docs/codec-format.md says the same in prose.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "compress/kernels.h"

namespace gradlane {
namespace {

constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInf = 0x7f800000;
constexpr uint32_t kCanonicalNan = 0x7fc00000;

inline uint32_t to_bits(float f) { return std::bit_cast<uint32_t>(f); }
inline float to_float(uint32_t bits) { return std::bit_cast<float>(bits); }

// IEEE addition whose NaN does not depend on the operands: x86 would keep the first operand's payload.
inline float add(float a, float b) {
  const float sum = a + b;
  return std::isnan(sum) ? to_float(kCanonicalNan) : sum;
}

// A float of a tagged codec: tag 0, 1, 2, 3 with 0, 1, 2, 4 payload bytes in the low bits.
struct Tagged {
  unsigned tag;
  uint32_t payload;
};

// The multiple of the step s nearest to f, ties to even; f itself where all floats are multiples of s, or f is Inf or
// NaN.
inline float on_lattice(const CodecParams& p, float f) {
  if (!(std::fabs(f) < p.exact)) return f;
  return std::nearbyintf(f * p.steps_per_one) * p.step;
}

struct Fixed {
  static constexpr bool kFeedback = true;

  // What f adds to a sum.
  static float contribution(const CodecParams& p, float f) { return on_lattice(p, f); }

  static Tagged encode(const CodecParams& p, float f) {
    if (!(std::fabs(f) < p.exact)) return {3, to_bits(f)};
    const float steps = std::nearbyintf(f * p.steps_per_one);
    const auto q = static_cast<int32_t>(steps);
    if (q == 0) return {0, 0};
    if (-127 <= q && q <= 127) return {1, static_cast<uint8_t>(q)};
    if (-32767 <= q && q <= 32767) return {2, static_cast<uint16_t>(q)};
    return {3, to_bits(steps * p.step)};
  }

  static float decode(const CodecParams& p, Tagged t) {
    switch (t.tag) {
      case 0:
        return 0.0F;
      case 1:
        return static_cast<float>(static_cast<int8_t>(t.payload)) * p.step;
      case 2:
        return static_cast<float>(static_cast<int16_t>(t.payload)) * p.step;
      default:
        return to_float(t.payload);
    }
  }
};

template <bool kTruncate>
struct Inceptionn {
  static constexpr bool kFeedback = false;

  static float contribution(const CodecParams& p, float f) { return kTruncate ? f : on_lattice(p, f); }

  // Everything is a multiple of 2^-15 first; classes are those of that multiple, and 8 bits serve if it rounds to them.
  static Tagged encode(const CodecParams& p, float f) {
    const uint32_t bits = to_bits(f);
    const float magnitude = to_float(bits & kMagnitude);
    if (!(magnitude < 1.0F)) return {3, bits};
    const float scaled = magnitude * p.steps_per_one;
    const auto q = static_cast<uint32_t>(kTruncate ? std::trunc(scaled) : std::nearbyintf(scaled));
    if (q > 32767) return {3, bits};
    if (q < 1U << (15 - p.bits)) return {0, 0};
    const uint32_t negative = bits >> 31;
    // 7 bits, the lowest one worth 2^-(h+7).
    const uint32_t half = kTruncate ? 0 : 1U << (7 - p.split);
    const uint32_t byte = (q + half) >> (8 - p.split);
    if (byte <= 127) return {1, negative << 7 | byte};
    return {2, negative << 15 | q};
  }

  static float decode(const CodecParams& p, Tagged t) {
    uint32_t q;  // in steps of 2^-15
    bool negative;
    switch (t.tag) {
      case 0:
        return 0.0F;
      case 1:
        q = (t.payload & 0x7f) << (8 - p.split);
        negative = (t.payload & 0x80) != 0;
        break;
      case 2:
        q = t.payload & 0x7fff;
        negative = (t.payload & 0x8000) != 0;
        break;
      default:
        return to_float(t.payload);
    }
    const float value = static_cast<float>(q) * p.step;
    return negative && q != 0 ? -value : value;
  }
};

struct Raw {
  using Word = uint32_t;
  static Word encode(float f) { return to_bits(f); }
  static float decode(Word w) { return to_float(w); }
};

// Upper half of the float, rounded to nearest even.
struct Bf16 {
  using Word = uint16_t;
  static Word encode(float f) {
    const uint32_t bits = to_bits(f);
    if (std::isnan(f)) return static_cast<Word>(bits >> 16 | 0x40);
    return static_cast<Word>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  static float decode(Word w) { return to_float(static_cast<uint32_t>(w) << 16); }
};

// IEEE 754 binary16, rounded to nearest even, as VCVTPS2PH and VCVTPH2PS do it.
struct Fp16 {
  using Word = uint16_t;
  static Word encode(float f) {
    const uint32_t bits = to_bits(f);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & kMagnitude;
    if (magnitude > kInf) return static_cast<Word>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return static_cast<Word>(sign | 0x7c00);  // rounds to 2^16 or more
    if (magnitude < 0x38800000) {  // below 2^-14: a multiple of 2^-24, rounded by the addition
      return static_cast<Word>(sign | (to_bits(to_float(magnitude) + 0.5F) - to_bits(0.5F)));
    }
    const uint32_t odd = magnitude >> 13 & 1;
    return static_cast<Word>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
  }
  static float decode(Word w) {
    const uint32_t sign = static_cast<uint32_t>(w & 0x8000) << 16;
    const uint32_t magnitude = w & 0x7fff;
    if (magnitude > 0x7c00) return to_float(sign | kInf | 0x400000 | magnitude << 13);
    if (magnitude == 0x7c00) return to_float(sign | kInf);
    if (magnitude >= 0x400) return to_float(sign | ((magnitude << 13) + 0x38000000));
    return to_float(sign | to_bits(static_cast<float>(magnitude) * 0x1p-24F));
  }
};

}  // namespace
}  // namespace gradlane
