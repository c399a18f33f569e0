// plane_floats.cc - contributions with groups of chosen kinds in bit planes
#include "tests/collectives/exchange/plane_floats.h"

#include <cmath>
#include <limits>

#include "base/random.h"

namespace gradlane::test {
namespace {

constexpr size_t kGroup = 32;

Groups of_group(Groups groups, size_t group) {
  return groups == Groups::kMixed ? static_cast<Groups>(Random::mix(group + 1) % 5) : groups;
}

// Returns a number from -1 to 1.
double fraction(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-52 - 1; }

// Returns a number of steps that needs more than 16 bits and is far below 2^24, or Inf or NaN.
double far_out(size_t i, uint64_t word) {
  const double sign = (Random::mix(i + 1) & 1) == 0 ? 1 : -1;
  if (word % 37 == 0) return sign * std::numeric_limits<double>::infinity();
  if (word % 41 == 0) return std::numeric_limits<double>::quiet_NaN();
  return sign * (0x1p15 + 1 + 0x1p20 * std::fabs(fraction(word)));
}

double steps(Groups kind, size_t i, uint64_t word) {
  switch (kind) {
    case Groups::kNarrow:
      return 3 * fraction(word);
    case Groups::kWide:
      return 1000 * fraction(word);
    case Groups::kEscaped:
      return i % kGroup == 3 || i % kGroup == 31 ? far_out(i, word) : 3 * fraction(word);
    case Groups::kRaw:
      return far_out(i, word);
    default:
      return 0.49 * fraction(word);
  }
}

}  // namespace

void fill_groups(Groups groups, const Codec& codec, uint64_t seed, std::span<float> out) {
  const double step = std::ldexp(1.0, 1 - static_cast<int>(codec.bits()));
  Random random(seed);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(step * steps(of_group(groups, i / kGroup), i, random.next()));
  }
}

}  // namespace gradlane::test
