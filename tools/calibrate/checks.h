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

// Returns how well the predictions fit, from all-reduces of 64 KiB and more. It has the ratio that is furthest from 1,
// and how much faster fixed:10 was than raw for the longest ones. The result is empty if one of these codecs is
// missing.
[[nodiscard]] CalibrationChecks checks_of(std::span<const CheckedTime> checked);

}  // namespace gradlane
