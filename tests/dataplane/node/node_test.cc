// node_test.cc - construction, upkeep and end of a node, without its threads
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "dataplane/node/ring_facts.h"
#include "tests/dataplane/cluster.h"

namespace gradlane::test::node_test {
namespace {

TEST(Node, LanesAndQueuesAreDividedAmongWorkers) {
  const struct {
    unsigned lanes;
    unsigned threads;
    unsigned workers;
  } cases[] = {{1, 1, 1}, {2, 1, 1}, {2, 2, 2}, {4, 2, 2}, {3, 2, 2}};
  for (const auto& it : cases) {
    Cluster cluster({.nodes = 2, .change = [&it](NodeConfig& config) {
                       config.lanes = it.lanes;
                       config.threads = it.threads;
                     }});
    EXPECT_EQ(cluster.node(0).workers().size(), it.workers) << it.lanes << " lanes, " << it.threads << " threads";
    unsigned lanes = 0;
    cluster.node(0).for_each_lane([&lanes](const Lane& lane, unsigned number) {
      EXPECT_EQ(number, lanes++);
      EXPECT_EQ(lane.rank(), 0U);
    });
    EXPECT_EQ(lanes, it.lanes);
    EXPECT_TRUE(cluster.run_until([&cluster] { return cluster.ready(); }));
  }
}

TEST(Node, EachTrainerIsARankUnlessTheyReduceLocally) {
  for (const bool local_reduce : {false, true}) {
    Cluster cluster({.nodes = 2, .change = [local_reduce](NodeConfig& it) {
                       it.trainers = 3;
                       it.local_reduce = local_reduce;
                     }});
    std::vector<unsigned> ranks;
    cluster.node(1).for_each_lane([&ranks](const Lane& lane, unsigned) { ranks.push_back(lane.rank()); });
    EXPECT_EQ(ranks, local_reduce ? std::vector<unsigned>{1} : (std::vector<unsigned>{3, 4, 5}));
    EXPECT_TRUE(cluster.run_until([&cluster] { return cluster.ready(); }));
  }
}

TEST(Node, ARingOfFourComesUp) {
  Cluster cluster({.nodes = 4});
  EXPECT_EQ(cluster.node(0).ports().size(), 2U);
  EXPECT_TRUE(cluster.run_until([&cluster] { return cluster.ready(); }));
  for (const auto& node : cluster.nodes()) EXPECT_EQ(node->neighbours().size(), 2U);
}

TEST(Node, AddressesOnLinksOfThisMachineAreItsOwnAtOnce) {
  Cluster cluster;
  EXPECT_TRUE(cluster.node(0).addresses_settled());
  EXPECT_NO_THROW(cluster.node(0).check_addresses());
}

TEST(Node, ASecondOneOfItsConfigurationGoesNoFurther) {
  Cluster cluster;
  RingLinks links;
  EXPECT_THROW(Node(cluster.node(0).config(), links, 1000), SetupError);
}

// The neighbour's hellos are addressed to ranks that node 0 does not have. But the hellos carry the neighbour's
// settings, whether the ring is the only strategy or not, so node 0 knows them.
TEST(Node, KnowsWhatANeighbourWithOtherRanksHas) {
  for (const char* const strategies : {"ring", "direct"}) {
    Cluster cluster(
        {.nodes = 2, .strategies = strategies, .change = [](NodeConfig& it) { it.trainers = it.rank + 1; }});
    cluster.run_for(20 * kMillisecond);
    const RingFacts facts = ring_facts(cluster.node(0), cluster.now());
    ASSERT_EQ(facts.neighbours.size(), 1U);
    const Failure& why = facts.neighbours[0].refused;
    EXPECT_EQ(why.field, Field::kTrainers) << strategies;
    EXPECT_EQ(why.ours, 1U);
    EXPECT_EQ(why.theirs, 2U);
  }
}

TEST(Node, KnowsWhomItMisses) {
  Cluster cluster({.nodes = 2, .played = true});
  Node& node = cluster.node(0);
  const Nanos begin = cluster.now();
  for (; cluster.now() < begin + 6 * kSecond; cluster.set_now(cluster.now() + 10 * kMillisecond)) {
    (void)cluster.round(0);
    node.maintain(cluster.now());
  }
  const auto& seen = node.ring().neighbours();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].facts.node, 1U);
  EXPECT_FALSE(seen[0].facts.up);
  EXPECT_FALSE(seen[0].facts.mac_known);
  EXPECT_NE(seen[0].why, "");
}

TEST(Node, KnowsThatTheRingIsWhole) {
  Cluster cluster;
  ASSERT_TRUE(cluster.run_until([&cluster] { return cluster.ready(); }));
  cluster.run_for(200 * kMillisecond);
  cluster.node(0).maintain(cluster.now());
  const auto& seen = cluster.node(0).ring().neighbours();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen[0].facts.up);
  EXPECT_TRUE(seen[0].facts.heard);
  EXPECT_EQ(seen[0].why, "");
}

TEST(Node, FailsWhatIsInFlightWhenItCloses) {
  Cluster cluster({.nodes = 3});
  Trainer here(cluster, 0);
  Trainer there(cluster, 1);
  for (Trainer* const it : {&here, &there}) {
    it->attach();
    it->add_segment(0, 4096);
  }
  ASSERT_TRUE(cluster.run_until([&cluster] { return cluster.ready(); }));
  const uint64_t ours = here.submit(submission_of(OpKind::kAllReduce, ElementType::kFloat32, 100));
  const uint64_t theirs = there.submit(submission_of(OpKind::kAllReduce, ElementType::kFloat32, 100));
  cluster.run_for(kMillisecond);
  EXPECT_EQ(cluster.node(0).in_flight(), 1U);
  EXPECT_EQ(cluster.node(1).in_flight(), 1U);
  EXPECT_EQ(cluster.node(2).in_flight(), 0U);
  cluster.node(0).post_close("the link has gone");
  EXPECT_FALSE(cluster.node(0).closed());
  ASSERT_TRUE(cluster.run_until([&cluster] { return cluster.node(0).closed(); }));
  EXPECT_EQ(cluster.node(0).in_flight(), 0U);
  // The trainer does not know yet that the node closes.
  const uint64_t later = here.submit(submission_of(OpKind::kAllReduce, ElementType::kFloat32, 100));
  ASSERT_TRUE(cluster.run_until([&] { return here.over(later).has_value(); }));
  EXPECT_EQ(here.over(later)->text, "the link has gone (it was submitted before that was known)");
  ASSERT_TRUE(here.over(ours).has_value());
  EXPECT_NE(here.over(ours)->text.find("the link has gone"), std::string::npos) << here.over(ours)->text;
  ASSERT_TRUE(cluster.run_until([&] { return there.over(theirs).has_value(); }));
  EXPECT_EQ(there.over(theirs)->text, "rank 0 has left, or was shut down");
}

TEST(Node, NamesTheFilesThatItMakes) {
  Cluster cluster;
  const auto files = cluster.node(0).files();
  EXPECT_TRUE(std::ranges::find(files, cluster.node(0).config().socket) != files.end());
  EXPECT_TRUE(std::filesystem::exists(cluster.node(0).config().socket));
}

}  // namespace
}  // namespace gradlane::test::node_test
