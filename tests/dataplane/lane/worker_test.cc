// worker_test.cc - a worker between its rounds: spin, yield, sleep, and wake up in time
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "tests/dataplane/cluster.h"

namespace gradlane::test::worker_test {
namespace {

TEST(Worker, FallsAsleepWhereNothingMoves) {
  Cluster cluster({.nodes = 2, .played = true});
  Worker& worker = *cluster.node(0).workers()[0];
  Trainer trainer(cluster, 0);
  trainer.attach();
  gl_submission barrier{};
  barrier.kind = GL_BARRIER;
  (void)trainer.submit(barrier);
  // A worker that waits for packets yields its CPU for 2 ms, and then sleeps.
  const Nanos begin = cluster.now();
  Nanos yielded_at = 0;
  Nanos slept_at = 0;
  for (; cluster.now() < begin + 4 * kMillisecond && slept_at == 0; cluster.set_now(cluster.now() + kMicrosecond)) {
    bool moved = worker.receive(cluster.now());
    moved |= worker.poll(cluster.now());
    const Idle::Advice advice = worker.rest(moved, cluster.now());
    EXPECT_EQ(moved, cluster.now() == begin) << "the barrier is submitted in the first round";
    if (yielded_at == 0 && advice.yield) yielded_at = cluster.now();
    if (advice.sleep != 0) slept_at = cluster.now();
  }
  EXPECT_EQ(yielded_at - begin, 3 * kMicrosecond);
  EXPECT_EQ(slept_at - begin, Idle::kMemoryPatience);
}

// A worker wakes up at the end of each sleep. It sends its hellos no later than if it had not slept.
TEST(Worker, SleepsNoLongerThanUntilSomethingIsDue) {
  const auto hellos = [](bool sleeps) {
    Cluster cluster({.nodes = 2, .played = true});
    cluster.peer().send([] {
      // The peer sends an ARP reply, because nothing is sent to a neighbour without an address.
      Bytes frame(60);
      const uint8_t head[] = {0x02, 0,    0, 0, 0, 0x0a, 0x02, 0,  0, 0, 0, 0x0b, 0x08, 0x06, 0, 1, 8,    0,  6, 4, 0,
                              2,    0x02, 0, 0, 0, 0,    0x0b, 10, 0, 0, 2, 0x02, 0,    0,    0, 0, 0x0a, 10, 0, 0, 1};
      std::copy(std::begin(head), std::end(head), frame.begin());
      return frame;
    }());
    Worker& worker = *cluster.node(0).workers()[0];
    std::vector<Nanos> times;
    const Nanos begin = cluster.now();
    uint64_t sent = 0;
    unsigned rounds = 0;
    while (cluster.now() < begin + 50 * kMillisecond) {
      ++rounds;
      bool moved = worker.receive(cluster.now());
      moved |= worker.poll(cluster.now());
      if (const uint64_t now_sent = cluster.counted(0, "sent"); now_sent != sent) {
        sent = now_sent;
        times.push_back(cluster.now() - begin);
      }
      while (cluster.peer().receive()) {
      }
      const Idle::Advice advice = worker.rest(moved, cluster.now());
      cluster.set_now(cluster.now() + (sleeps && advice.sleep != 0 ? advice.sleep : kMicrosecond));
    }
    return std::pair(times, rounds);
  };
  const auto [awake, rounds_awake] = hellos(false);
  const auto [asleep, rounds_asleep] = hellos(true);
  ASSERT_GT(awake.size(), 2U);
  ASSERT_EQ(awake.size(), asleep.size());
  // The worker does not sleep for less than 20 us.
  for (size_t i = 0; i < awake.size(); ++i) EXPECT_NEAR(double(awake[i]), double(asleep[i]), 25e3) << "hello " << i;
  EXPECT_LT(rounds_asleep, rounds_awake / 5);
}

TEST(Worker, NeverRestsWhereItSpins) {
  Cluster cluster({.nodes = 2, .played = true, .change = [](NodeConfig& it) { it.idle = IdlePolicy::kSpin; }});
  Worker& worker = *cluster.node(0).workers()[0];
  for (unsigned i = 0; i < 100; ++i) {
    cluster.set_now(cluster.now() + 100 * kMillisecond);
    (void)cluster.round(0);
    const Idle::Advice advice = worker.rest(false, cluster.now());
    EXPECT_FALSE(advice.yield);
    EXPECT_EQ(advice.sleep, 0U);
  }
}

}  // namespace
}  // namespace gradlane::test::worker_test
