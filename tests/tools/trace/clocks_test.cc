// clocks_test.cc - the clocks of daemons, converted to the clock of the process that asks them
#include "tools/trace/clocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace gradlane::test::trace_clocks_test {
namespace {

constexpr int64_t kMilli = 1'000'000;

// Returns readings of a daemon's clocks. The daemon's own clock runs `ppm` too fast, and its kernel's clock is `offset`
// behind the asker's. Now and then the daemon loses its CPU while it reads them, or the asker does.
std::vector<ClockReading> readings(size_t count, double ppm, int64_t offset, uint64_t seed) {
  Random random(seed);
  std::vector<ClockReading> result;
  for (size_t i = 0; i < count; ++i) {
    const int64_t now = static_cast<int64_t>(i) * 200 * kMilli + 1'000'000'000'000;
    const auto spread = static_cast<int64_t>(random.below(10) == 0 ? 80'000 : 100 + random.below(50));
    const auto wait = static_cast<int64_t>(random.below(200'000));
    const int64_t there = now + 50'000 + wait;  // time of the daemon's reading, by the asker's clock
    result.push_back({.asked = now,
                      .answered = there + 40'000 + static_cast<int64_t>(random.below(500'000)),
                      .own = static_cast<int64_t>(static_cast<double>(there - offset) * (1 + ppm / 1e6)) +
                             static_cast<int64_t>(random.below(static_cast<uint64_t>(spread))),
                      .monotonic = there - offset,
                      .wall = 0,
                      .spread = spread});
  }
  return result;
}

TEST(ClocksTest, AreWithinTheErrorThatTheyState) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    for (const double ppm : {0.0, 1500.0, -200.0}) {
      const auto seen = readings(26, ppm, 0, seed);
      const ClockFit fit = fit_clock(seen);
      EXPECT_EQ(fit.offset, 0);
      EXPECT_LT(fit.error, 1000);
      EXPECT_NEAR(fit.rate, 1 / (1 + ppm / 1e6), 1e-6);
      for (const ClockReading& it : seen) {
        if (it.spread > 200) continue;
        EXPECT_LE(std::abs(static_cast<double>(fit.at(it.own) - it.monotonic)), fit.error);
      }
    }
  }
}

TEST(ClocksTest, OfAnotherNamespaceAreWithinTheRoundTrip) {
  for (const int64_t offset : {5'000'000'000, -700 * kMilli}) {
    const auto seen = readings(26, 300, offset, 3);
    const ClockFit fit = fit_clock(seen);
    EXPECT_NE(fit.offset, 0);
    EXPECT_LE(std::abs(static_cast<double>(fit.offset - offset)), fit.error);
    EXPECT_LT(fit.error, 500'000);
    for (const ClockReading& it : seen) {
      if (it.spread > 200) continue;
      EXPECT_LE(std::abs(static_cast<double>(fit.at(it.own) - (it.monotonic + offset))), fit.error);
    }
  }
}

TEST(ClocksTest, OneReadingWillDo) {
  const auto seen = readings(1, 0, 0, 1);
  const ClockFit fit = fit_clock(seen);
  EXPECT_EQ(fit.rate, 1);
  EXPECT_EQ(fit.at(seen[0].own + 1000), seen[0].monotonic + 1000);
}

}  // namespace
}  // namespace gradlane::test::trace_clocks_test
