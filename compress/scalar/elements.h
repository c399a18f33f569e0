// elements.h - bits and sums of single floats; included by the scalar kernels of every codec
//
// The code is in an unnamed namespace; layout.h says why.
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

// IEEE addition whose NaN does not depend on the operands: x86 would keep the payload of the first NaN.
inline float add(float a, float b) {
  const float sum = a + b;
  return std::isnan(sum) ? to_float(kCanonicalNan) : sum;
}

}  // namespace
}  // namespace gradlane
