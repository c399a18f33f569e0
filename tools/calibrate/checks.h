// checks.h - how well the figures fit the ring on which they were measured (no I/O)
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/cost/calibration.h"

namespace gradlane {

// The time of an all-reduce, as the figures predict it and as measured.
struct CheckedTime {
  std::string codec;
  size_t bytes = 0;
  double measured = 0;  // s, on the slowest rank
  double predicted = 0;
};

// Compares the times of all-reduces of 64 KiB and more with the predictions. The result has the ratio measured /
// predicted that is furthest from 1, and the speedup of fixed:10 compared with raw in the longest all-reduces. It is
// empty if the times of raw or fixed:10 are missing.
[[nodiscard]] CalibrationChecks checks_of(std::span<const CheckedTime> checked);

}  // namespace gradlane
