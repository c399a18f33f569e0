// tail.cc - the spread of times: percentiles of samples (pure functions)
#include "tools/perf/tail.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gradlane {

double percentile(std::span<const double> sorted, double share) noexcept {
  // The rounding error of the product is less than this.
  constexpr double kRounding = 1e-9;
  const double rank = std::ceil(share * static_cast<double>(sorted.size()) - kRounding);
  const size_t number = static_cast<size_t>(std::max(rank, 1.0));
  return sorted[std::min(number, sorted.size()) - 1];
}

Tail tail_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {percentile(samples, 0.5), percentile(samples, 0.9), percentile(samples, 0.99), percentile(samples, 0.999),
          samples.back()};
}

}  // namespace gradlane
