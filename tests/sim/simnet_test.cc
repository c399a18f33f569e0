// simnet_test.cc - the simulated network: deliveries and their times, buffers, pauses, and runs that repeat to the byte
#include "sim/simnet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "tests/sim/quiet_net.h"

namespace gradlane::test::simnet_test {
namespace {

// ---- The network, with packets of the tests' own

TEST(SimNet, LinksRunBetweenNeighboursBothWays) {
  QuietNet quiet(small(4));
  quiet.send(0, 1, 1);
  quiet.send(0, 3, 2);
  quiet.send(2, 1, 3);
  quiet.net.run_until(700);
  quiet.send(2, 1, 4);
  quiet.net.run_until(10000);
  EXPECT_EQ(quiet.net.now(), 10000U);
  const std::vector<Delivery> expected = {{1500, 0, 1, 1}, {1500, 0, 3, 2}, {1500, 2, 1, 3}, {2500, 2, 1, 4}};
  EXPECT_EQ(quiet.deliveries, expected);
  EXPECT_EQ(quiet.net.stats(2, 1).delivered, 2U);
  EXPECT_EQ(quiet.net.stats(1, 2).delivered, 0U);
  EXPECT_EQ(quiet.net.stats().bytes, 4U * 934);
  EXPECT_GT(quiet.net.stats().filtered, 0U);
  EXPECT_THROW((void)quiet.net.stats(0, 2), SetupError);
  EXPECT_THROW((void)quiet.net.node(4), SetupError);
}

TEST(SimNet, AWorldOfTwoHasOneLinkEachWay) {
  QuietNet quiet(small(2));
  quiet.send(0, 1, 1);
  quiet.send(1, 0, 2);
  quiet.net.run_until(10000);
  const std::vector<Delivery> expected = {{1500, 1, 0, 2}, {1500, 0, 1, 1}};
  EXPECT_TRUE(std::ranges::is_permutation(quiet.deliveries, expected));
}

TEST(SimNet, PacketsOfOneInstantAreFollowedByOnePoll) {
  QuietNet quiet(small(3));
  quiet.net.run_until(100);
  quiet.send(0, 1, 1);
  quiet.send(2, 1, 2);
  quiet.net.run_until(1599);
  const uint64_t polls = quiet.net.node(1).polls();
  EXPECT_EQ(quiet.deliveries.size(), 0U);
  quiet.net.run_until(1600);
  EXPECT_EQ(quiet.deliveries.size(), 2U);
  EXPECT_EQ(quiet.net.node(1).polls(), polls + 1);
  EXPECT_EQ(quiet.net.node(1).exchange().counters()[Counter::kBadMagic], 2U);
}

TEST(SimNet, APausedNodeGetsItsPacketsWhenItGoesOn) {
  SimConfig config = small(2);
  config.pause_queue = 3;
  QuietNet quiet(config);
  quiet.net.run_until(10);
  quiet.net.pause(1);
  const uint64_t polls = quiet.net.node(1).polls();
  for (uint8_t i = 0; i < 5; ++i) quiet.send(0, 1, i);
  quiet.net.run_until(kSecond);
  EXPECT_EQ(quiet.deliveries.size(), 0U);
  EXPECT_EQ(quiet.net.node(1).polls(), polls);
  EXPECT_EQ(quiet.net.node(1).pause_drops(), 2U);
  EXPECT_GT(quiet.net.node(0).polls(), 5U);  // its timers continued
  quiet.net.resume(1);
  quiet.net.run_until(kSecond);
  const std::vector<Delivery> expected = {{kSecond, 0, 1, 0}, {kSecond, 0, 1, 1}, {kSecond, 0, 1, 2}};
  EXPECT_EQ(quiet.deliveries, expected);
  EXPECT_EQ(quiet.net.node(1).polls(), polls + 1);
  quiet.net.run_until(2 * kSecond);
  EXPECT_GT(quiet.net.node(1).polls(), polls + 1);
}

TEST(SimNet, InjectedPacketsArriveAtOnce) {
  QuietNet quiet(small(2));
  quiet.net.run_until(123);
  quiet.net.inject(1, 0, packet_of(1));
  quiet.net.inject(1, 7, packet_of(quiet.net.max_packet(), 2));
  quiet.net.inject(0, 1, {});
  quiet.net.set_tap(nullptr);  // the tap cannot handle empty packets
  quiet.net.run_until(123);
  const Counters& counters = quiet.net.node(1).exchange().counters();
  EXPECT_EQ(counters[Counter::kTooShort] + counters[Counter::kUnknownPeer], 2U);
  EXPECT_EQ(quiet.net.node(0).exchange().counters()[Counter::kTooShort], 1U);
  EXPECT_THROW(quiet.net.inject(0, 1, packet_of(quiet.net.max_packet() + 1)), SetupError);
}

// ---- Buffers

TEST(SimNet, BuffersAreLimitedAndCounted) {
  SimConfig config = small(2);
  config.buffers = 3;
  QuietNet quiet(config);
  SimNode& node = quiet.net.node(0);
  const size_t held = node.buffers_held();
  std::vector<Packet> packets;
  while (const Packet packet = node.allocate()) packets.push_back(packet);
  EXPECT_EQ(held + packets.size(), 3U);
  EXPECT_EQ(node.buffers_held(), 3U);
  EXPECT_EQ(node.buffers_peak(), 3U);
  for (const Packet& packet : packets) node.release(packet);
  EXPECT_EQ(node.buffers_held(), held);
}

TEST(SimNetDeath, MisuseOfBuffersAborts) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  QuietNet quiet(small(2));
  SimNode& node = quiet.net.node(0);
  const Packet packet = node.allocate();
  EXPECT_DEATH(quiet.net.node(1).release(packet), "node 1 released a packet buffer that it does not hold");
  EXPECT_DEATH((void)node.transmit(5, packet, 10), "node 0 transmitted to a rank that is no neighbour");
  EXPECT_DEATH((void)node.transmit(1, packet, node.config().mtu + 1), "node 0 transmitted a packet beyond its MTU");
  EXPECT_DEATH(quiet.net.restart_node(0), "had not released all packet buffers");
  node.release(packet);
  EXPECT_DEATH(node.release(packet), "node 0 released a packet buffer that it does not hold");
  EXPECT_DEATH((void)node.transmit(1, packet, 10), "node 0 transmitted a packet buffer that it does not hold");
}

// ---- The network, with exchanges at work

TEST(SimNet, AllReduceInWorldsOfSeveralSizes) {
  for (const unsigned nodes : {1U, 2U, 3U, 8U}) {
    SimNet net(raw(nodes));
    WholeNumbers job(nodes, 10000);
    job.submit(net);
    ASSERT_FALSE(net.idle());
    ASSERT_TRUE(net.run_until_idle(kSecond)) << nodes;
    EXPECT_TRUE(job.right()) << nodes;
    for (unsigned i = 0; i < nodes; ++i) {
      ASSERT_EQ(net.node(i).completions().size(), 1U);
      EXPECT_EQ(net.node(i).completions()[0].failure, Failure{});
      EXPECT_LE(net.node(i).completions()[0].time, net.now());
    }
    EXPECT_EQ(net.count(Counter::kOperationsDone), nodes);
  }
}

TEST(SimNet, ARunIsAFunctionOfTheSeed) {
  const Trace first = trace_of(raw(4, 1));
  const Trace again = trace_of(raw(4, 1));
  EXPECT_EQ(again.hash, first.hash);
  EXPECT_EQ(again.end, first.end);
  EXPECT_EQ(again.stats.wire_bytes, first.stats.wire_bytes);
  EXPECT_GT(first.stats.lost, 0U);
  EXPECT_NE(trace_of(raw(4, 2)).hash, first.hash);
}

TEST(SimNet, ARestartedNodeIsAnotherOne) {
  SimNet net(raw(3));
  const auto hellos = [&net] { return net.count(Counter::kHelloSent); };
  WholeNumbers lost(3, 10000);
  net.submit(1, lost.operation(1));
  net.run_until(10 * kMillisecond);
  EXPECT_FALSE(net.idle());
  const uint64_t incarnation = net.node(1).config().incarnation;
  const uint64_t sent = hellos();
  net.restart_node(1);
  EXPECT_TRUE(net.idle());
  EXPECT_NE(net.node(1).config().incarnation, incarnation);
  EXPECT_EQ(net.node(1).config().rank, 1U);
  EXPECT_GE(hellos(), sent);  // counters from before the restart count, too
  net.run_until(5 * kSecond);

  WholeNumbers job(3, 10000);
  job.submit(net);
  ASSERT_TRUE(net.run_until_idle(10 * kSecond));
  EXPECT_TRUE(job.right());
}

TEST(SimNet, NodesCanBeConfiguredApart) {
  SimConfig config = raw(2);
  config.adjust = [](unsigned node, ExchangeConfig& exchange) { exchange.mtu = node == 0 ? 1000 : 2000; };
  SimNet net(config);
  EXPECT_EQ(net.node(0).config().mtu, 1000U);
  EXPECT_EQ(net.node(1).config().mtu, 2000U);
  EXPECT_NE(net.node(0).config().incarnation, net.node(1).config().incarnation);
  EXPECT_GE(net.max_packet(), 2000U);
}

TEST(SimNet, ABlackoutThatEndsDelaysAndNoMore) {
  SimNet net(raw(3));
  WholeNumbers job(3, 100000);
  job.submit(net);
  net.run_until(300 * kMicrosecond);
  EXPECT_FALSE(net.idle());
  net.black_out(0, 1, net.now());
  net.run_until(50 * kMillisecond);
  EXPECT_FALSE(net.idle());
  net.lift(0, 1);
  ASSERT_TRUE(net.run_until_idle(2 * kSecond));
  EXPECT_TRUE(job.right());
  EXPECT_GT(net.stats(0, 1).blacked_out, 0U);
}

}  // namespace
}  // namespace gradlane::test::simnet_test
