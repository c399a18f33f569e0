// time_histogram.h - a histogram of times, whose bounds are successive powers of two (plain data of one thread)
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// The bounds are 2^kFirst ns and the next kBounds - 1 powers of two.
template <unsigned kFirst, size_t kBounds>
struct TimeHistogram {
  static_assert(kFirst + kBounds < 64);
  static constexpr size_t kPlaces = kBounds + 1;
  [[nodiscard]] static constexpr Nanos bound(size_t place) noexcept { return Nanos{1} << (kFirst + place); }

  // Counts a time. It costs a shift and two additions.
  void add(Nanos time) noexcept {
    const auto place = static_cast<size_t>(std::bit_width((std::max<Nanos>(time, 1) - 1) >> kFirst));
    ++counts[std::min(place, kBounds)];
    sum += time;
  }

  std::array<uint64_t, kPlaces>
      counts{};      // number of times above bound(place - 1) and up to bound(place); the last: times above all bounds
  uint64_t sum = 0;  // sum of all times
};

using RttHistogram = TimeHistogram<12, 20>;        // 4 us to 2 s
using OperationHistogram = TimeHistogram<14, 23>;  // 16 us to 69 s

}  // namespace gradlane
