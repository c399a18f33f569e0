// secopa_test.cc - tests with HiPress' published plan and thresholds
#include "collectives/cost/secopa.h"

#include <gtest/gtest.h>

#include <utility>

namespace gradlane::test::secopa_test {
namespace {

// The plan for VGG-19 that HiPress ships, for parameter servers on four nodes: elements -> compress, K (artifact of the
// paper at SOSP 2021).
TEST(Secopa, PublishedPlanOfVgg19) {
  const SecopaCosts costs = hipress_costs(4).value();
  struct Line {
    double elements;
    bool compress;
    unsigned partitions;
  };
  const Line lines[] = {{64, false, 4},      {128, false, 4},     {256, false, 4},    {512, false, 4},
                        {1000, false, 4},    {1728, false, 4},    {4096, false, 4},   {36864, false, 4},
                        {73728, false, 4},   {147456, false, 4},  {294912, false, 4}, {589824, false, 4},
                        {1048576, true, 1},  {1179648, true, 2},  {2359296, true, 4}, {4096000, true, 4},
                        {16777216, true, 4}, {102760448, true, 4}};
  for (const Line& line : lines) {
    const SecopaPlan plan = secopa_plan(costs, SecopaChoice::kServers, 4, line.elements);
    EXPECT_EQ(plan.compress, line.compress) << line.elements;
    EXPECT_EQ(plan.partitions, line.partitions) << line.elements;
  }
}

TEST(Secopa, Thresholds) {
  const std::pair<unsigned, double> rings[] = {{4, 2.7}, {8, 4.6}, {16, 8.6}};
  for (const auto& [nodes, megabytes] : rings) {
    EXPECT_NEAR(4e-6 * secopa_threshold(hipress_costs(nodes).value(), SecopaChoice::kRing, nodes).value(), megabytes,
                0.05);
  }
  const std::pair<unsigned, double> servers[] = {{4, 2.7}, {8, 5.1}, {16, 9.9}};
  for (const auto& [nodes, megabytes] : servers) {
    EXPECT_NEAR(4e-6 * secopa_threshold(hipress_costs(nodes).value(), SecopaChoice::kServers, nodes).value(), megabytes,
                0.05);
  }
  EXPECT_FALSE(hipress_costs(5));
  EXPECT_FALSE(secopa_threshold(hipress_costs(4).value(), SecopaChoice::kRing, 4, 1000));
}

// If nothing has a cost, compression does not help, and one part is as good as several.
TEST(Secopa, FreeCosts) {
  SecopaCosts free;
  for (SecopaCurve* const each : {&free.encode, &free.decode, &free.send, &free.gather, &free.broadcast}) {
    *each = {1e-300, 0, 0};
  }
  const SecopaPlan plan = secopa_plan(free, SecopaChoice::kRing, 4, 0);
  EXPECT_FALSE(plan.compress);
  EXPECT_EQ(plan.partitions, 1U);
  EXPECT_EQ(plan.ms, 0);
}

}  // namespace
}  // namespace gradlane::test::secopa_test
