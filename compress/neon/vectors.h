// vectors.h - 32 floats at a time: two vectors of the kit, which are four registers each (included by neon.cc only)
#pragma once

#include <arm_neon.h>

#include "compress/kit/vectors.h"

namespace gradlane {
namespace {

static_assert(kPart == 4);

// 32 floats in order.
struct Group {
  Floats low, high;
};

template <class F>
GRADLANE_INLINE Group map(F f, const Group& x) {
  return {f(x.low), f(x.high)};
}
template <class F>
GRADLANE_INLINE Group map(F f, const Group& x, const Group& y) {
  return {f(x.low, y.low), f(x.high, y.high)};
}

// Load and store a group at any address.
GRADLANE_INLINE Group load_group(const float* p) { return {load(p), load(p + kLanes)}; }
GRADLANE_INLINE void store_group(float* p, const Group& x) {
  store(x.low, p);
  store(x.high, p + kLanes);
}

}  // namespace
}  // namespace gradlane
