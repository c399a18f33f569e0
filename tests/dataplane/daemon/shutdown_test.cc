// shutdown_test.cc - the orderly end of several nodes in one process, which waits for each of them
#include "dataplane/daemon/shutdown.h"

#include <gtest/gtest.h>

#include "tests/dataplane/cluster.h"

namespace gradlane::test::shutdown_test {
namespace {

// Two nodes, with an operation that only the second node has submitted. The first node has the shorter
// shutdown_timeout.
class ShutdownOfTwo : public testing::Test {
 protected:
  void SetUp() override {
    first_.attach();
    second_.attach();
    ASSERT_TRUE(cluster_.run_until([this] { return cluster_.ready(); }));
    barrier_ = second_.submit(submission_of(OpKind::kBarrier, ElementType::kBytes, 0));
    cluster_.run_for(kMillisecond);
    ASSERT_EQ(cluster_.node(0).in_flight(), 0U);
    ASSERT_EQ(cluster_.node(1).in_flight(), 1U);
    begin_ = cluster_.now();
    shutdown_.emplace(cluster_.nodes(), nullptr, begin_);
  }

  // Returns whether the shutdown ends within that time. It is stepped as in the daemon's loop.
  bool is_done_within(Nanos time) {
    return cluster_.run_until([this] { return shutdown_->step(cluster_.now()); }, time);
  }

  Cluster cluster_{
      {.nodes = 2, .change = [](NodeConfig& it) { it.shutdown_timeout = (it.rank == 0 ? 10 : 40) * kMillisecond; }}};
  Trainer first_{cluster_, 0};
  Trainer second_{cluster_, 1};
  uint64_t barrier_ = 0;
  Nanos begin_ = 0;
  std::optional<Shutdown> shutdown_;
};

TEST_F(ShutdownOfTwo, OperationsOfEachNodeComplete) {
  EXPECT_FALSE(is_done_within(30 * kMillisecond));
  (void)first_.submit(submission_of(OpKind::kBarrier, ElementType::kBytes, 0));
  // For 50 ms of this time, the daemon waits until the other ranks are notified.
  EXPECT_TRUE(is_done_within(60 * kMillisecond));
  ASSERT_TRUE(second_.over(barrier_).has_value());
  EXPECT_EQ(second_.over(barrier_)->failed, 0U) << second_.over(barrier_)->text;
}

TEST_F(ShutdownOfTwo, OperationsFailAfterTheLongestTimeout) {
  EXPECT_FALSE(is_done_within(39 * kMillisecond));
  EXPECT_FALSE(second_.over(barrier_).has_value());
  EXPECT_TRUE(is_done_within(60 * kMillisecond));
  ASSERT_TRUE(second_.over(barrier_).has_value());
  EXPECT_EQ(second_.over(barrier_)->failed, 1U);
}

TEST_F(ShutdownOfTwo, LanesOfEachNodeAreWaitedFor) {
  cluster_.stop(1, true);
  EXPECT_FALSE(is_done_within(kSecond));
  cluster_.stop(1, false);
  EXPECT_TRUE(is_done_within(60 * kMillisecond));
}

}  // namespace
}  // namespace gradlane::test::shutdown_test
