// tail.h - how times are spread: percentiles of samples (pure functions)
#pragma once

#include <span>
#include <vector>

namespace gradlane {

// The unit is that of the samples.
struct Tail {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double p999 = 0;
  double most = 0;

  [[nodiscard]] double ratio() const noexcept { return p50 > 0 ? p99 / p50 : 0; }
};

// The least sample that no less than `share` (0 to 1) of all are not above (nearest rank). `sorted` ascends; not empty.
[[nodiscard]] double percentile(std::span<const double> sorted, double share) noexcept;

// Of samples in any order; of none all is 0.
[[nodiscard]] Tail tail_of(std::vector<double> samples);

}  // namespace gradlane
