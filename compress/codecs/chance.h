// chance.h - random numbers as selections compare them; included by their translation units
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include "compress/kit/operators.h"

namespace gradlane {
namespace {

// Between 0 and 1, but neither of them, and 1/2 in the mean: odd multiples of 2^-24. Of `words` the upper 23 bits
// count.
GRADLANE_INLINE Floats between(const Words& words) {
  return floats_of(shifted_right<9>(words) | all(0x3f800000U)) - all(0x0.ffffffp0F);
}

// `size` with the sign of x.
GRADLANE_INLINE Floats signed_as(const Floats& x, const Floats& size) {
  return floats_of(bits_of(size) | (bits_of(x) & all(0x80000000U)));
}

}  // namespace
}  // namespace gradlane
