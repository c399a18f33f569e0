// tail.h - the spread of times: percentiles of samples (pure functions)
#pragma once

#include <span>
#include <vector>

namespace gradlane {

// Percentiles of samples, in the unit of the samples.
struct Tail {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double p999 = 0;
  double most = 0;

  [[nodiscard]] double ratio() const noexcept { return p50 > 0 ? p99 / p50 : 0; }
};

// Returns a percentile by nearest rank: the smallest sample x such that at least the share `share` (0 to 1) of all
// samples is not greater than x. `sorted` ascends and is not empty.
[[nodiscard]] double percentile(std::span<const double> sorted, double share) noexcept;

// Computes the percentiles of samples, which may be in any order. All are 0 if there are no samples.
[[nodiscard]] Tail tail_of(std::vector<double> samples);

}  // namespace gradlane
