// checks.h - whether the figures fit the ring that they were measured on (no I/O)
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/plan/calibration.h"

namespace gradlane {

// What the figures say of an all-reduce, and what it took.
struct CheckedTime {
  std::string codec;
  size_t bytes = 0;
  double measured = 0;  // s, of the slowest rank
  double predicted = 0;
};

// How far off they are: of those of 64 KiB and more the one that is furthest off, and of the longest of both codecs
// which was faster.
[[nodiscard]] CalibrationChecks checks_of(std::span<const CheckedTime> checked);

}  // namespace gradlane
