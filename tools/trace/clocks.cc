// clocks.cc - conversion of a daemon's clock to the asker's, and the error of that (pure functions)
#include "tools/trace/clocks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace gradlane {
namespace {

constexpr int64_t kLeastBetween = 50'000'000;  // ns; least time between two readings that give a rate
constexpr double kMostDrift = 1e-2;            // greatest deviation of a clock's rate; a greater one is not used

const ClockReading& tightest(std::span<const ClockReading> readings) {
  return *std::ranges::min_element(readings, {}, &ClockReading::spread);
}

}  // namespace

ClockFit fit_clock(std::span<const ClockReading> readings) {
  ClockFit fit;
  const size_t third = (readings.size() + 2) / 3;
  const ClockReading& first = tightest(readings.first(third));
  const ClockReading& last = tightest(readings.last(third));
  fit.own = first.own;
  fit.common = first.monotonic;
  if (last.own - first.own >= kLeastBetween) {
    const double rate =
        static_cast<double>(last.monotonic - first.monotonic) / static_cast<double>(last.own - first.own);
    if (std::abs(rate - 1) <= kMostDrift) fit.rate = rate;
  }
  // Ignores the half of the readings with the greatest spread: in these, the thread may have lost its CPU between the
  // clocks.
  std::vector<int64_t> spreads;
  for (const ClockReading& it : readings) spreads.push_back(it.spread);
  std::ranges::sort(spreads);
  const int64_t loose = spreads[(spreads.size() - 1) / 2];
  for (const ClockReading& it : readings) {
    if (it.spread > loose) continue;
    fit.error = std::max(fit.error, static_cast<double>(std::abs(fit.at(it.own) - it.monotonic) + it.spread));
  }
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
  for (const ClockReading& it : readings) {
    least = std::max(least, it.asked - it.monotonic);
    most = std::min(most, it.answered - it.monotonic);
  }
  if (least > 0 || most < 0) {
    fit.offset = least / 2 + most / 2;
    fit.error += static_cast<double>(std::abs(most - least)) / 2 + 1;
    fit.common += fit.offset;
  }
  return fit;
}

}  // namespace gradlane
