// plane_floats.h - contributions with groups of chosen kinds in bit planes
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"

namespace gradlane::test {

// The kind of all groups of 32 floats. kMixed: each group has another kind, the same on all ranks.
enum class Groups : uint8_t {
  kZero,     // each magnitude is below half a step of the codec, so it is rounded to 0
  kNarrow,   // magnitudes of at most three steps
  kWide,     // magnitudes of at most a thousand steps
  kEscaped,  // two floats of each group do not fit 16 bits
  kRaw,      // no float fits 16 bits, and some are Inf or NaN; floats at the same index have the same sign on all ranks
  kMixed,
};

// Fills `out`, which begins with a group, for a codec `fixed`. Sums of such floats are exact, or Inf or NaN, in any
// order of additions.
void fill_groups(Groups groups, const Codec& codec, uint64_t seed, std::span<float> out);

}  // namespace gradlane::test
