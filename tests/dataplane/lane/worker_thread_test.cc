// worker_thread_test.cc - a worker's own thread, by the real clock
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "dataplane/device/eal.h"
#include "tests/dataplane/cluster.h"

namespace gradlane::test::worker_thread_test {
namespace {

TEST(WorkerThread, StopsWhileItSleeps) {
  Cluster cluster({.nodes = 2, .played = true});
  cluster.node(0).start(clock_now());
  const std::atomic<uint64_t>& asked = cluster.node(0).neighbours()[0]->arp_tries;
  while (asked.load() == 0) std::this_thread::yield();
  cluster.node(0).stop_workers();
  EXPECT_GT(cluster.counted(0, "arp_sent"), 0U);
}

}  // namespace
}  // namespace gradlane::test::worker_thread_test
