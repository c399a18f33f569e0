// rss_table_test.cc - flows to a node, workers for queues, and RSS tables that keep lanes apart
#include "dataplane/device/rss_table.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace gradlane::test::rss_plan_test {
namespace {

NodeConfig config_of(unsigned nodes, unsigned rank, unsigned lanes, unsigned trainers) {
  NodeConfig config;
  config.rank = rank;
  config.lanes = lanes;
  config.trainers = trainers;
  for (unsigned i = 0; i < nodes; ++i) config.nodes.push_back({.rank = i, .ip = 0x0a4d0001 + i, .mac = {}});
  return config;
}

// These are examples for IPv4 with ports, from Microsoft's "Verifying the RSS Hash Calculation".
TEST(RssHash, IsWhatCardsCompute) {
  constexpr std::array<uint8_t, 40> kKey = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                            0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                            0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                            0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
  const ArrivingFlow first{0, 0x420995bb, 0xa18e6450, 2794, 1766};    // 66.9.149.187 to 161.142.100.80
  const ArrivingFlow second{0, 0xc75c6f02, 0x41458c53, 14230, 4739};  // 199.92.111.2 to 65.69.140.83
  EXPECT_EQ(rss_hash(first, kKey), 0x51ccc178U);
  EXPECT_EQ(rss_hash(second, kKey), 0xc626b0eaU);
}

TEST(ArrivingFlows, ComeFromBothNeighboursToEachLane) {
  const NodeConfig config = config_of(4, 0, 2, 1);
  const std::vector<ArrivingFlow> expected = {{0, 0x0a4d0002, 0x0a4d0001, 18400, 18400},
                                              {0, 0x0a4d0004, 0x0a4d0001, 18400, 18400},
                                              {1, 0x0a4d0002, 0x0a4d0001, 18401, 18401},
                                              {1, 0x0a4d0004, 0x0a4d0001, 18401, 18401}};
  EXPECT_EQ(arriving_flows(config, {}), expected);
  const std::array<unsigned, 2> through = {2, 3};
  EXPECT_EQ(arriving_flows(config, through), (std::vector{expected[1], expected[3]}));
}

// With three trainers per node, the last trainer of a node and the first one of the next node are neighbours.
TEST(ArrivingFlows, BelongToTrainersAtTheEdges) {
  const std::vector<ArrivingFlow> expected = {{0, 0x0a4d0001, 0x0a4d0002, 18402, 18400},
                                              {0, 0x0a4d0003, 0x0a4d0002, 18400, 18402},
                                              {1, 0x0a4d0001, 0x0a4d0002, 18405, 18403},
                                              {1, 0x0a4d0003, 0x0a4d0002, 18403, 18405}};
  EXPECT_EQ(arriving_flows(config_of(3, 1, 2, 3), {}), expected);
  NodeConfig local = config_of(3, 1, 1, 3);
  local.local_reduce = true;
  EXPECT_EQ(arriving_flows(local, {}), (std::vector<ArrivingFlow>{{0, 0x0a4d0003, 0x0a4d0002, 18400, 18400},
                                                                  {0, 0x0a4d0001, 0x0a4d0002, 18400, 18400}}));
}

// In a ring of five nodes, the neighbours of node 2 are 1 and 3. Every rank also has a link to rank 0, of node 0.
TEST(ArrivingFlows, FollowTheStrategies) {
  NodeConfig config = config_of(5, 2, 1, 1);
  config.strategies = find_strategies("aggregator:0");
  const std::array<unsigned, 1> through = {0};
  EXPECT_EQ(arriving_flows(config, {}).size(), 3U);
  EXPECT_EQ(arriving_flows(config, through), (std::vector<ArrivingFlow>{{0, 0x0a4d0001, 0x0a4d0003, 18400, 18400}}));
}

TEST(ArrivingFlows, AreEachThereOnce) {
  EXPECT_EQ(arriving_flows(config_of(2, 1, 3, 1), {}).size(), 3U);
  EXPECT_EQ(arriving_flows(config_of(2, 1, 3, 2), {}).size(), 6U);
  EXPECT_TRUE(arriving_flows(config_of(1, 0, 3, 2), {}).empty());
}

TEST(WorkersFit, PollWhatTheirLanesGet) {
  for (unsigned lanes = 1; lanes <= kMaxLanes; ++lanes) {
    for (unsigned workers = 1; workers <= lanes; ++workers) EXPECT_TRUE(workers_fit(lanes, lanes, workers));
    for (unsigned queues = 1; queues <= lanes; ++queues) EXPECT_TRUE(workers_fit(lanes, queues, 1));
  }
  EXPECT_TRUE(workers_fit(4, 2, 2));
  EXPECT_FALSE(workers_fit(4, 2, 4));  // lane 2 is at queue 0, where worker 0 gets packets for worker 2
  EXPECT_FALSE(workers_fit(4, 3, 2));
  EXPECT_FALSE(workers_fit(2, 1, 2));
}

TEST(PlanRss, PutsEveryFlowAtItsLanesQueue) {
  for (const size_t entries : {size_t{16}, size_t{64}, size_t{128}, size_t{512}}) {
    for (const unsigned lanes : {1U, 2U, 4U, 8U}) {
      for (const unsigned queues : {lanes, (lanes + 1) / 2}) {
        const std::vector<ArrivingFlow> flows = arriving_flows(config_of(4, 2, lanes, 2), {});
        const auto plan = plan_rss(flows, queues, entries, 40);
        ASSERT_TRUE(plan) << entries << " entries, " << lanes << " lanes, " << queues << " queues";
        ASSERT_EQ(plan->table.size(), entries);
        ASSERT_EQ(plan->key.size(), 40U);
        for (const ArrivingFlow& flow : flows) {
          ASSERT_EQ(plan->table[rss_hash(flow, plan->key) % entries], flow.lane % queues);
        }
        for (const uint16_t queue : plan->table) ASSERT_LT(queue, queues);
      }
    }
  }
}

// These are 32 flows to 16 queues. The hash is linear. So there is a key with which no table entry gets flows of two
// lanes.
TEST(PlanRss, ManagesTheMostLanesWithTheUsualTable) {
  const std::vector<ArrivingFlow> flows = arriving_flows(config_of(4, 0, 16, 1), {});
  EXPECT_TRUE(plan_rss(flows, 16, 128, 40));
  EXPECT_TRUE(plan_rss(flows, 16, 512, 52));
  EXPECT_TRUE(plan_rss(flows, 16, 16, 40));
  EXPECT_FALSE(plan_rss(flows, 16, 8, 40));  // more lanes than entries
}

// With a link to every node there are more flows than entries in a table. So the hash must depend on the ports alone.
TEST(PlanRss, ManagesLinksToAllNodes) {
  NodeConfig config = config_of(256, 100, 8, 1);
  config.strategies = find_strategies("ring,direct");
  const std::vector<ArrivingFlow> flows = arriving_flows(config, {});
  ASSERT_EQ(flows.size(), 8 * 255U);
  for (const size_t entries : {size_t{16}, size_t{128}, size_t{512}}) {
    const auto plan = plan_rss(flows, 8, entries, 40);
    ASSERT_TRUE(plan) << entries;
    for (const ArrivingFlow& flow : flows) {
      ASSERT_EQ(plan->table[rss_hash(flow, plan->key) % entries], flow.lane);
    }
  }
}

TEST(PlanRss, SaysWhatCannotBe) {
  const std::vector<ArrivingFlow> flows = arriving_flows(config_of(3, 0, 2, 1), {});
  EXPECT_FALSE(plan_rss(flows, 2, 0, 40));
  EXPECT_FALSE(plan_rss(flows, 2, 100, 40));
  EXPECT_FALSE(plan_rss(flows, 2, 128, 15));
  EXPECT_TRUE(plan_rss(flows, 2, 128, 16));
}

TEST(PlanRss, TriesOtherKeys) {
  std::set<std::vector<uint8_t>> keys;
  for (unsigned rank = 0; rank < 8; ++rank) {
    const auto plan = plan_rss(arriving_flows(config_of(8, rank, 16, 1), {}), 16, 16, 40);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->key, plan_rss(arriving_flows(config_of(8, rank, 16, 1), {}), 16, 16, 40)->key);
    keys.insert(plan->key);
  }
  EXPECT_GT(keys.size(), 1U);
}

}  // namespace
}  // namespace gradlane::test::rss_plan_test
