// lane_test.cc - lanes of nodes in one process: results, several lanes and ranks, exhausted pools, timeouts to the
// nanosecond
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/dataplane/cluster.h"
#include "tests/dataplane/ranks.h"

namespace gradlane::test::lane_test {
namespace {

TEST(Lane, SumsWithItsNeighbours) {
  for (const unsigned nodes : {2U, 3U}) {
    Cluster cluster({.nodes = nodes});
    Ranks ranks(cluster);
    ranks.run(all_reduce(1));
    ranks.run(all_reduce(100'000));
    EXPECT_EQ(cluster.node(0).in_flight(), 0U);
  }
}

TEST(Lane, TwoLanesShareATensor) {
  for (const unsigned threads : {1U, 2U}) {
    Cluster cluster({.nodes = 2, .change = [threads](NodeConfig& it) {
                       it.lanes = 2;
                       it.threads = threads;
                     }});
    ASSERT_EQ(cluster.node(0).workers().size(), threads);
    Ranks ranks(cluster);
    ranks.run(all_reduce(100'000));
    for (const unsigned queue : {0U, 1U}) EXPECT_GT(cluster.counted(1, queue, "raw"), 100U) << "queue " << queue;
    EXPECT_EQ(cluster.counted(1, "wrong_lane"), 0U);
  }
}

TEST(Lane, RanksOfOneNodeHandPacketsToEachOther) {
  Cluster cluster({.nodes = 2, .change = [](NodeConfig& it) { it.trainers = 2; }});
  Ranks ranks(cluster);
  ASSERT_EQ(ranks.count(), 4U);
  ranks.run(all_reduce(50'000));
}

void secure(NodeConfig& it, Security security) {
  it.security = security;
  it.key_file = write_key(std::filesystem::path(it.socket).parent_path());
}

class Secured : public testing::TestWithParam<Security> {};
INSTANTIATE_TEST_SUITE_P(Each, Secured,
                         testing::Values(Security::kAuthenticated, Security::kEncrypted, Security::kEncrypted128));

TEST_P(Secured, PacketsAreTakenFromWhoHasTheKey) {
  Cluster cluster({.nodes = 2, .change = [](NodeConfig& it) { secure(it, GetParam()); }});
  Ranks ranks(cluster);
  ranks.run(all_reduce(10'000));
  EXPECT_GT(cluster.counted(0, "gradlane"), 20U);
  EXPECT_EQ(cluster.counted(0, "forged"), 0U);
  EXPECT_EQ(cluster.counted(0, "replayed"), 0U);
}

TEST_P(Secured, FaultsAreRepaired) {
  Cluster cluster({.nodes = 3, .change = [](NodeConfig& it) {
                     secure(it, GetParam());
                     it.trainers = 2;
                     it.faults = {.drop = 0.02, .duplicate = 0.02, .reorder = 0.02, .corrupt = 0.02, .delay = 0.02};
                   }});
  Ranks ranks(cluster);
  for (int i = 0; i < 5; ++i) ranks.run(all_reduce(30'000));
  EXPECT_GT(cluster.counted(0, "forged"), 0U) << "a changed packet";
  EXPECT_GT(cluster.counted(0, "replayed"), 0U) << "a packet that came twice";
}

TEST(Lane, FaultsAreMadeAndRepaired) {
  Cluster cluster({.nodes = 2, .change = [](NodeConfig& it) {
                     it.faults = {.drop = 0.02, .duplicate = 0.02, .reorder = 0.02, .corrupt = 0.02, .delay = 0.02};
                   }});
  Ranks ranks(cluster);
  for (unsigned i = 0; i < 3; ++i) ranks.run(all_reduce(100'000));
  for (const char* const name :
       {"injected_drop", "injected_duplicate", "injected_reorder", "injected_corrupt", "injected_delay"}) {
    EXPECT_GT(cluster.counted(0, name), 0U) << name;
  }
}

TEST(Lane, WaitsWhileThereAreNoBuffers) {
  Cluster cluster;
  Ranks ranks(cluster);
  ranks.run(all_reduce(1000));
  const Task task = all_reduce(100'000);
  std::vector<uint64_t> cookies;
  size_t hoarded = 0;
  {
    Hoard all(cluster.node(0));
    hoarded = all.buffers();
    for (unsigned rank = 0; rank < 2; ++rank) cookies.push_back(ranks.submit(rank, task));
    cluster.run_for(20 * kMillisecond);
    EXPECT_FALSE(ranks[0].over(cookies[0]).has_value());
    uint64_t refused = 0;
    cluster.node(0).for_each_lane(
        [&refused](const Lane& lane, unsigned) { refused += lane.exchange().counters()[Counter::kNoBuffer]; });
    EXPECT_GT(refused, 0U);
    EXPECT_GT(cluster.counted(0, "no_copy"), 0U) << "of acknowledgements, which have a buffer of their own";
  }
  ranks.finish(task, cookies);
  cluster.run_for(50 * kMillisecond);
  // Up to 4 buffers may still hold acknowledgements.
  EXPECT_GE(Hoard(cluster.node(0)).buffers() + 4, hoarded);
}

// ---- Timeouts

TEST(Lane, AnOperationFailsAtItsDeadlineAndNotANanosecondEarlier) {
  Cluster cluster;
  Ranks ranks(cluster);
  ranks.run(all_reduce(1000));
  const uint64_t cookie = ranks.submit(0, all_reduce(1000), 7);  // rank 1 never submits it
  const Nanos begun = cluster.now();
  const Nanos deadline = begun + 7 * kMillisecond;
  while (cluster.now() + kMicrosecond < deadline) cluster.step();
  cluster.set_now(deadline - 1);
  for (unsigned i = 0; i < 3; ++i) EXPECT_TRUE(((void)cluster.round(0), !ranks[0].over(cookie).has_value()));
  EXPECT_EQ(cluster.node(0).in_flight(), 1U);
  cluster.set_now(deadline);
  (void)cluster.round(0);
  ASSERT_TRUE(ranks[0].over(cookie).has_value());
  EXPECT_EQ(ranks[0].over(cookie)->text, "the operation took too long: it was waiting for rank 1 (limit: 7 ms)");
  EXPECT_EQ(cluster.node(0).in_flight(), 0U);
}

TEST(Lane, WithoutARingAnOperationFailsAtItsDeadline) {
  Cluster cluster({.nodes = 2, .played = true, .change = [](NodeConfig& it) { it.start_timeout = 30 * kMillisecond; }});
  Ranks ranks(cluster);
  const Nanos begun = cluster.now();
  gl_submission barrier{};
  barrier.kind = GL_BARRIER;
  const uint64_t cookie = ranks[0].submit(barrier);
  (void)cluster.round(0);
  for (const Nanos after : {Nanos{1}, 10 * kMillisecond, 30 * kMillisecond - 1}) {
    cluster.set_now(begun + after);
    (void)cluster.round(0);
    EXPECT_FALSE(ranks[0].over(cookie).has_value());
  }
  cluster.set_now(begun + 30 * kMillisecond);
  (void)cluster.round(0);
  ASSERT_TRUE(ranks[0].over(cookie).has_value());
  EXPECT_EQ(ranks[0].over(cookie)->text, "the ring did not come up in time: nothing was heard from rank 1");
}

TEST(Lane, TrainersOfOneNodeWaitForEachOtherToTheNanosecond) {
  Cluster cluster({.nodes = 2, .change = [](NodeConfig& it) {
                     it.trainers = 2;
                     it.local_reduce = true;
                     it.operation_timeout = 9 * kMillisecond;
                   }});
  Ranks ranks(cluster);
  ranks.run(all_reduce(1000));
  const uint64_t cookie = ranks.submit(0, all_reduce(1000));  // the other trainer of node 0 does not submit it
  const Nanos begun = cluster.now();
  (void)cluster.round(0);
  cluster.set_now(begun + 9 * kMillisecond - 1);
  (void)cluster.round(0);
  EXPECT_FALSE(ranks[0].over(cookie).has_value());
  cluster.set_now(begun + 9 * kMillisecond);
  (void)cluster.round(0);
  ASSERT_TRUE(cluster.run_until([&] { return ranks[0].over(cookie).has_value(); }, kSecond));
  EXPECT_EQ(ranks[0].over(cookie)->text, "other trainers of this node have waited too long for rank 1");
}

// The other ranks must also learn of the failure before their own peer_timeout. So a silent neighbour is given up
// somewhat earlier.
TEST(Lane, ANeighbourThatFallsSilentIsNamed) {
  Cluster cluster;
  Ranks ranks(cluster);
  ranks.run(all_reduce(1000));
  const uint64_t cookie = ranks.submit(0, all_reduce(1000));
  const Nanos heard = cluster.now();
  const Nanos patience = cluster.node(0).config().peer_timeout;
  for (; cluster.now() < heard + patience / 2; cluster.set_now(cluster.now() + 50 * kMicrosecond)) {
    (void)cluster.round(0);
  }
  EXPECT_FALSE(ranks[0].over(cookie).has_value()) << ranks[0].over(cookie)->text;
  for (; cluster.now() < heard + patience; cluster.set_now(cluster.now() + 50 * kMicrosecond)) {
    (void)cluster.round(0);
  }
  ASSERT_TRUE(ranks[0].over(cookie).has_value());
  EXPECT_NE(ranks[0].over(cookie)->text.find("rank 1"), std::string::npos) << ranks[0].over(cookie)->text;
}

}  // namespace
}  // namespace gradlane::test::lane_test
