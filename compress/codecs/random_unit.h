// random_unit.h - random numbers between 0 and 1, as selections compare them; included by their translation units
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/kit/operators.h"

namespace gradlane {
namespace {

// Converts random words to numbers between 0 and 1, neither of them included, with a mean of 1/2: odd multiples of
// 2^-24. Only the upper 23 bits of `words` count.
GRADLANE_INLINE Floats to_unit_interval(const Words& words) {
  return floats_of(shifted_right<9>(words) | all(0x3f800000U)) - all(0x0.ffffffp0F);
}

// Returns `size` with the sign of x.
GRADLANE_INLINE Floats signed_as(const Floats& x, const Floats& size) {
  return floats_of(bits_of(size) | (bits_of(x) & all(0x80000000U)));
}

}  // namespace
}  // namespace gradlane
