// cost_test.cc - tests of the model of one all-reduce: its terms and their consequences
#include "collectives/cost/cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gradlane::test::cost_test {
namespace {

AllReduceTime time_of(const Calibration& calibration, const char* codec, double elements, unsigned world,
                      const char* strategy) {
  return all_reduce_time(calibration, *calibration.find(codec), {elements, world, find_strategy(strategy)});
}

TEST(AllReduceTime, OfOneRankIsNothing) {
  EXPECT_EQ(time_of(free_calibration(1, 1), "raw", 1000, 1, "ring").seconds, 0);
  EXPECT_EQ(time_of(free_calibration(1, 1), "raw", 0, 4, "ring").seconds, 0);
}

// Each rank sends 2 (p - 1) / p of the bytes, in packets with 1408 bytes of payload and 1538 bytes on the wire.
TEST(AllReduceTime, OfLongTensorsIsTheLinks) {
  const double elements = 352.0 * 4 * 8 * 1000;
  for (const char* const strategy : {"ring", "direct"}) {
    const AllReduceTime time = time_of(free_calibration(0, 1e9), "raw", elements, 4, strategy);
    EXPECT_NEAR(time.seconds, 1.5 * 4 * elements / 1408 * 1538 / 1e9, 1e-4) << strategy;
    EXPECT_EQ(time.limit, PlanLimit::kLink);
    EXPECT_DOUBLE_EQ(time.sent_packets, 1.5 * elements / 352);
  }
}

TEST(AllReduceTime, OfShortTensorsIsTheHops) {
  const Calibration slow = free_calibration(1e-3, 1e12);
  EXPECT_NEAR(time_of(slow, "raw", 1024, 8, "ring").seconds, 15e-3, 1e-4);
  EXPECT_NEAR(time_of(slow, "raw", 1024, 8, "direct").seconds, 3e-3, 1e-4);
  EXPECT_NEAR(time_of(slow, "raw", 1024, 8, "rings:4").seconds, 9e-3, 1e-4);
  EXPECT_EQ(time_of(slow, "raw", 1024, 8, "ring").limit, PlanLimit::kLatency);
}

TEST(AllReduceTime, OfAnAggregatorIsItsPort) {
  const Calibration free = free_calibration(0, 1e9);
  const double ring = time_of(free, "raw", 1 << 22, 8, "ring").seconds;
  EXPECT_NEAR(time_of(free, "raw", 1 << 22, 8, "aggregator:0").seconds / ring, 8, 0.1);
  EXPECT_NEAR(time_of(free, "raw", 1 << 22, 8, "aggregator:0,stream").seconds / ring, 4, 0.1);
}

TEST(AllReduceTime, NamesWhatLimits) {
  Calibration usual = usual_calibration(PlanPort::kUdp);
  usual.link.bandwidth = 50e9;
  EXPECT_EQ(time_of(usual, "raw", 1 << 24, 4, "ring").limit, PlanLimit::kPackets);
  EXPECT_EQ(time_of(usual, "dgc:0.1%", 1 << 24, 4, "ring").limit, PlanLimit::kCodec);
  usual.memory = 1e9;
  EXPECT_EQ(time_of(usual, "dgc:0.1%", 1 << 24, 4, "ring").limit, PlanLimit::kMemory);
  usual.link.bandwidth = 1e7;
  EXPECT_EQ(time_of(usual, "raw", 1 << 24, 4, "ring").limit, PlanLimit::kLink);
}

TEST(AllReduceTime, LanesShareTheWork) {
  Calibration usual = usual_calibration(PlanPort::kUdp);
  usual.link.bandwidth = 1e12;
  const double one = time_of(usual, "raw", 1 << 24, 4, "ring").seconds;
  usual.lanes = 2;
  usual.contention = 1.25;
  EXPECT_NEAR(time_of(usual, "raw", 1 << 24, 4, "ring").seconds / one, 1.25 / 2, 0.02);
}

TEST(AllReduceTime, WaysThatCannotBe) {
  const Calibration free = free_calibration(0, 1e9);
  EXPECT_TRUE(std::isinf(time_of(free, "qsgd:4", 1000, 4, "ring").seconds));
  EXPECT_TRUE(std::isinf(time_of(free, "raw", 1000, 4, "rings:3").seconds));
  EXPECT_TRUE(std::isfinite(time_of(free, "qsgd:4", 1000, 4, "direct").seconds));
}

TEST(AllReduceTime, Fastest) {
  const Calibration slow = free_calibration(1e-3, 1e9);
  const std::vector<StrategyId> ways = find_strategies("ring,direct,rings:4,aggregator:0");
  EXPECT_EQ(fastest(slow, *slow.find("raw"), 256, 16, ways).strategy, find_strategy("direct"));
  EXPECT_EQ(fastest(slow, *slow.find("qsgd:4"), 1 << 24, 16, ways).strategy, find_strategy("direct"));
  const StrategyId ring;
  EXPECT_EQ(fastest(slow, *slow.find("raw"), 256, 16, {&ring, 1}).strategy, ring);
}

}  // namespace
}  // namespace gradlane::test::cost_test
