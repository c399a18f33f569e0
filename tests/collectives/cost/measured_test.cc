// measured_test.cc - all-reduces of other sizes, and on other rings, than those that were measured
#include "collectives/cost/measured.h"

#include <gtest/gtest.h>

namespace gradlane::test::measured_test {
namespace {

// Time grows with the square root of the bytes at first, and then in proportion.
const MeasuredExchange kMeasured = {"gloo", "fp32", {{100, 1, 0.5}, {400, 2, 0.5}, {4000, 20, 5}}};

TEST(MeasuredExchange, MeetsItsPoints) {
  for (const ExchangePoint& each : kMeasured.points) {
    EXPECT_NEAR(exchange_at(kMeasured, each.bytes).seconds, each.seconds, 1e-12);
    EXPECT_NEAR(exchange_at(kMeasured, each.bytes).busy, each.busy, 1e-12);
  }
}

TEST(MeasuredExchange, FollowsALineOnLogarithmicScales) {
  EXPECT_NEAR(exchange_at(kMeasured, 200).seconds, std::sqrt(2), 1e-12);
  EXPECT_NEAR(exchange_at(kMeasured, 800).seconds, 4, 1e-12);
  EXPECT_NEAR(exchange_at(kMeasured, 25).seconds, 0.5, 1e-12);
  EXPECT_NEAR(exchange_at(kMeasured, 8000).seconds, 40, 1e-12);
}

// Noise at the last points does not become a slope that no exchange has.
TEST(MeasuredExchange, GoesOnAtMostInProportion) {
  const MeasuredExchange steep = {"gloo", "fp32", {{100, 1, 0}, {200, 4, 0}}};
  EXPECT_NEAR(exchange_at(steep, 400).seconds, 8, 1e-12);
  EXPECT_NEAR(exchange_at(steep, 50).seconds, 0.5, 1e-12);
  const MeasuredExchange falling = {"gloo", "fp32", {{100, 4, 0}, {200, 2, 0}}};
  EXPECT_NEAR(exchange_at(falling, 400).seconds, 2, 1e-12);
  const MeasuredExchange one = {"gloo", "fp32", {{100, 4, 2}}};
  EXPECT_EQ(exchange_at(one, 50).seconds, 4);
  EXPECT_EQ(exchange_at(one, 300).seconds, 12);
  EXPECT_EQ(exchange_at(one, 300).busy, 6);
}

BucketChoice predicted(double seconds, double busy, double sent) {
  BucketChoice choice;
  choice.time.seconds = seconds;
  choice.time.sent_bytes = sent;
  choice.busy = busy;
  return choice;
}

TEST(MeasuredExchange, MovesToAnotherRing) {
  const ExchangeCost measured = {10, 4};
  const ExchangeCost own = move_own(measured, predicted(5, 2, 1), predicted(1, 3, 1));
  EXPECT_EQ(own.seconds, 2);
  EXPECT_EQ(own.busy, 6);
  const ExchangeCost rival = move_rival(measured, predicted(8, 0, 10), predicted(3, 0, 15));
  EXPECT_EQ(rival.seconds, 6);
  EXPECT_EQ(rival.busy, 6);
  // Something let the measured exchange be faster than links are. It is not faster than others.
  EXPECT_EQ(move_rival(measured, predicted(12, 0, 10), predicted(20, 0, 10)).seconds, 20);
  EXPECT_EQ(move_rival(measured, predicted(12, 0, 10), predicted(12, 0, 10)).seconds, 10);
}

TEST(MeasuredRing, Nearest) {
  const MeasuredRing rings[] = {{2, {0, 1, 0, 1e8}, {}}, {4, {0, 1, 0, 1e8}, {}}, {2, {0, 1, 0, 1e9}, {}}};
  EXPECT_EQ(nearest_ring(rings, 2, 9e7), &rings[0]);
  EXPECT_EQ(nearest_ring(rings, 64, 9e7), &rings[1]);
  EXPECT_EQ(nearest_ring(rings, 64, 9e9), &rings[2]);
  EXPECT_EQ(nearest_ring({}, 2, 1e8), nullptr);
}

}  // namespace
}  // namespace gradlane::test::measured_test
