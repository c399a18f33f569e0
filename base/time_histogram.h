// time_histogram.h - how many times fell between which bounds, each twice the one before (plain data of one thread)
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// Bounds are 2^kFirst ns, and the next kBounds - 1 powers of two.
template <unsigned kFirst, size_t kBounds>
struct TimeHistogram {
  static_assert(kFirst + kBounds < 64);
  static constexpr size_t kPlaces = kBounds + 1;
  [[nodiscard]] static constexpr Nanos bound(size_t place) noexcept { return Nanos{1} << (kFirst + place); }

  // A shift and two additions.
  void add(Nanos time) noexcept {
    const auto place = static_cast<size_t>(std::bit_width((std::max<Nanos>(time, 1) - 1) >> kFirst));
    ++counts[std::min(place, kBounds)];
    sum += time;
  }

  std::array<uint64_t, kPlaces>
      counts{};      // of times up to bound(place), and above the bound before; the last: above all
  uint64_t sum = 0;  // of all times
};

using RttHistogram = TimeHistogram<12, 20>;        // 4 us to 2 s
using OperationHistogram = TimeHistogram<14, 23>;  // 16 us to 69 s

}  // namespace gradlane
