// strategy_names_test.cc - tests of the names of strategies, and of the operations that they support
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "collectives/operation.h"
#include "collectives/strategy/strategy_id.h"

namespace gradlane::test::strategy_names_test {
namespace {

constexpr OpKind kRingKinds[] = {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kBroadcast,
                                 OpKind::kBarrier};

TEST(StrategyNames, ThereAndBack) {
  for (const char* const name :
       {"ring", "direct", "rings:1", "rings:8", "rings:256", "aggregator:0", "aggregator:255", "aggregator:7,stream"}) {
    const StrategyId id = find_strategy(name);
    EXPECT_EQ(id.name().view(), name);
    ASSERT_TRUE(strategy_of(id.code()).has_value()) << name;
    EXPECT_EQ(*strategy_of(id.code()), id) << name;
    EXPECT_EQ(packed_names(pack_strategies(std::vector{id})).view(), name);
  }
  EXPECT_FALSE(strategy_of(0).has_value());
  for (const uint32_t code : {5U, 255U, 0x101U, 0x102U, 0x10001U, 0x10002U, 0x10003U, 0x20004U, ~0U}) {
    EXPECT_FALSE(strategy_of(code).has_value()) << code;
  }
}

TEST(StrategyNames, Refused) {
  for (const char* const name : {"", "Ring", "ring:1", "direct:", "rings", "rings:", "rings:0", "rings:257", "rings:2x",
                                 "aggregator", "aggregator:-1", "aggregator:256", "aggregator:0,", "aggregator:0,fast",
                                 "aggregator:0,stream,stream", "tree", "stream"}) {
    EXPECT_THROW((void)find_strategy(name), SetupError) << name;
  }
  EXPECT_THROW((void)find_strategies("ring,"), SetupError);
  EXPECT_THROW((void)find_strategies("ring,stream"), SetupError);
}

TEST(StrategyNames, Lists) {
  const std::vector<StrategyId> list = find_strategies("ring,aggregator:3,stream,direct,rings:2,aggregator:3");
  ASSERT_EQ(list.size(), 5U);
  EXPECT_EQ(packed_names(pack_strategies(list)).view(), "ring, aggregator:3,stream, direct, rings:2, aggregator:3");
  EXPECT_EQ(pack_strategies(find_strategies("ring")), 0U);
  EXPECT_NE(pack_strategies(find_strategies("ring,direct")), pack_strategies(find_strategies("direct,ring")));
  EXPECT_EQ(packed_names(0).view(), "ring");
  EXPECT_EQ(packed_names(~uint64_t{0} >> 4).view(), "unknown, unknown, unknown, unknown, unknown");
}

TEST(StrategyNames, Faults) {
  EXPECT_EQ(strategy_fault(find_strategy("rings:3"), 6), "");
  EXPECT_EQ(strategy_fault(find_strategy("rings:4"), 6), "rings:4: 4 does not divide 6 ranks");
  EXPECT_EQ(strategy_fault(find_strategy("aggregator:5"), 6), "");
  EXPECT_EQ(strategy_fault(find_strategy("aggregator:6"), 6), "aggregator:6: there is no rank 6 of 6 ranks");
}

TEST(Supports, KindsThatNeedLinksBetweenAll) {
  for (const OpKind kind : {OpKind::kReduce, OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll}) {
    EXPECT_TRUE(supports(find_strategy("direct"), kind));
    for (const char* const name : {"ring", "rings:2", "aggregator:0"}) {
      EXPECT_FALSE(supports(find_strategy(name), kind)) << name;
    }
  }
  for (const OpKind kind : kRingKinds) EXPECT_TRUE(supports(find_strategy("ring"), kind));
}

}  // namespace
}  // namespace gradlane::test::strategy_names_test
