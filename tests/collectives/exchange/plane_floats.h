// plane_floats.h - contributions whose groups are of chosen kinds in bit planes
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"

namespace gradlane::test {

// Of all groups of 32 floats; kMixed: another one for each group, the same on all ranks.
enum class Groups : uint8_t {
  kZero,     // less than half a step each
  kNarrow,   // three steps at most
  kWide,     // a thousand steps
  kEscaped,  // two of each group do not fit 16 bits
  kRaw,      // none does, and some are Inf or NaN; those of one sign are at the same places on all ranks
  kMixed,
};

// Sums of them are exact, or Inf or NaN, in whichever order they are added. `out` begins with a group; `codec` is a
// `fixed`.
void fill_groups(Groups groups, const Codec& codec, uint64_t seed, std::span<float> out);

}  // namespace gradlane::test
