// switch_test.cc - the simulated switch: rate and latency, queues that overflow, fairness, partitions, and exchanges
// through it
#include "sim/switch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <vector>

#include "base/error.h"
#include "tests/sim/quiet_net.h"

namespace gradlane::test::switch_test {
namespace {

constexpr size_t kOverhead = kUdpIpBytes + kEthernetOverhead;

// ---- The switch itself, with packets of the tests' own

// 934 bytes are 1000 on the wire and take 1000 ns.
constexpr LinkModel kModel = {.bits_per_second = 8'000'000'000, .delay = 501, .queue_bytes = 10000};

class Net {
 public:
  explicit Net(unsigned nodes, const LinkModel& model = kModel, const Faults& faults = {}, uint64_t seed = 1)
      : core(nodes + SimSwitch::sources(nodes), 2000, 0), fabric(core, nodes, seed, model, faults) {
    hosts.reserve(nodes);
    for (unsigned i = 0; i < nodes; ++i) fabric.add_host(hosts.emplace_back(*this, i));
  }

  bool send(unsigned from, unsigned to, uint8_t number = 0, size_t bytes = 934) {
    return fabric.transmit(from, to, packet_of(bytes, number));
  }
  void run_until(Nanos time) {
    while (core.schedule.time() <= time && core.schedule.time() != kNever) {
      core.now = core.schedule.time();
      while (core.schedule.time() == core.now) {
        while (core.schedule.time() == core.now) fabric.fire(core.schedule.source());
        fabric.settle();
      }
    }
    core.now = std::max(core.now, time);
  }
  std::vector<Delivery> run() {
    run_until(core.now + kSecond);
    EXPECT_EQ(core.pool.taken(), 0U);
    return deliveries;
  }
  [[nodiscard]] LinkStats stats(unsigned from, unsigned to) { return fabric.path(from, to).stats(); }

  struct Host final : SimHost {
    Host(Net& owner, unsigned number) : net(owner), index(number) {}
    void arrive(SimBuffer* buffer) override {
      EXPECT_EQ(buffer->to, index);
      net.deliveries.push_back({net.core.now, buffer->from, index, buffer->data()[buffer->bytes - 1]});
      net.core.pool.give(buffer);
    }
    Net& net;
    unsigned index;
  };

  SimCore core;
  SimSwitch fabric;
  std::vector<Host> hosts;
  std::vector<Delivery> deliveries;
};

TEST(SimSwitch, AFlowHasTheRateOfThePortsAndHalfTheDelayOnEachSide) {
  for (const uint64_t rate : std::initializer_list<uint64_t>{10'000'000'000, 3'000'000'000, 777'000'000}) {
    const LinkModel model = {.bits_per_second = rate, .delay = 25001};
    Net net(4, model);
    constexpr size_t kPackets = 200;
    for (size_t i = 0; i < kPackets; ++i) ASSERT_TRUE(net.send(1, 3, static_cast<uint8_t>(i)));
    const std::vector<Delivery> got = net.run();
    ASSERT_EQ(got.size(), kPackets);
    const uint64_t bits = 8 * (934 + kOverhead);
    Nanos free_at = 0;  // when the switch's port is free
    for (size_t i = 0; i < kPackets; ++i) {
      // The time on each wire is exact over all packets, and rounded down for each packet.
      const Nanos at_switch = (i + 1) * bits * kSecond / rate + 12500;
      free_at = std::max(free_at, at_switch) + bits * kSecond / rate;
      EXPECT_EQ(got[i].number, i);
      ASSERT_GE(got[i].time, free_at + 12501) << rate << ", packet " << i;
      ASSERT_LE(got[i].time, free_at + 12501 + i + 1) << rate << ", packet " << i;
    }
    EXPECT_EQ(net.stats(1, 3).delivered, kPackets);
    EXPECT_EQ(net.stats(1, 3).wire_bytes, kPackets * 1000);
  }
}

TEST(SimSwitch, AnyNodeReachesAnyOtherThroughOnePort) {
  Net net(5);
  for (unsigned to = 1; to < 5; ++to) ASSERT_TRUE(net.send(0, to, static_cast<uint8_t>(to)));
  ASSERT_TRUE(net.send(4, 2, 9));
  // A packet takes 1000 ns on the cable to the switch and 250 ns of delay, then 1000 ns on the cable from the switch
  // and 251 ns of delay. Node 2's port is busy with node 4's packet when node 0's packet arrives.
  const std::vector<Delivery> expected = {
      {2501, 0, 1, 1}, {2501, 4, 2, 9}, {3501, 0, 2, 2}, {4501, 0, 3, 3}, {5501, 0, 4, 4}};
  EXPECT_EQ(net.run(), expected);
  EXPECT_FALSE(net.fabric.joined(2, 2));
  EXPECT_FALSE(net.fabric.joined(2, 5));
  EXPECT_TRUE(net.fabric.joined(4, 0));
}

TEST(SimSwitch, BothWaysOfAPortAreIndependent) {
  Net net(3);
  ASSERT_TRUE(net.send(0, 1, 1));
  ASSERT_TRUE(net.send(1, 0, 2));
  const std::vector<Delivery> expected = {{2501, 1, 0, 2}, {2501, 0, 1, 1}};
  EXPECT_EQ(net.run(), expected);
}

TEST(SimSwitch, AFullQueueOfANodeRefusesAndLosesNothing) {
  Net net(3);
  unsigned taken = 0;
  while (net.send(0, 1 + taken % 2)) ++taken;
  EXPECT_EQ(taken, 10U);
  EXPECT_FALSE(net.send(0, 2));
  EXPECT_EQ(net.stats(0, 1).busy, 1U);
  EXPECT_EQ(net.stats(0, 2).busy, 1U);
  net.run_until(1000);
  EXPECT_TRUE(net.send(0, 2));
  EXPECT_EQ(net.run().size(), 11U);
}

TEST(SimSwitch, IncastLosesWhatTheQueueOfThePortHasNoRoomFor) {
  Net net(4);
  for (unsigned from = 1; from < 4; ++from) {
    for (uint8_t i = 0; i < 10; ++i) ASSERT_TRUE(net.send(from, 0, i));
  }
  // Three packets arrive at each of ten instants, and one leaves in between. The queue has space for ten. After the
  // arrivals it has 3, 5, 7 and 9 packets. Then it drops one of 11, and after that two of 12 each time.
  EXPECT_EQ(net.run().size(), 30U - 1 - 5 * 2);
  uint64_t drops = 0;
  for (unsigned from = 1; from < 4; ++from) {
    EXPECT_GE(net.stats(from, 0).queue_drops, 3U);
    EXPECT_LE(net.stats(from, 0).queue_drops, 4U);
    EXPECT_EQ(net.stats(from, 0).packets, 10U);
    drops += net.stats(from, 0).queue_drops;
  }
  EXPECT_EQ(drops, 11U);
}

TEST(SimSwitch, SendersIntoOnePortGetEqualShares) {
  for (const unsigned senders : {2U, 3U, 7U}) {
    Net net(8);
    for (unsigned round = 0; round < 1000; ++round) {
      net.run_until(Nanos{round} * 1000);
      for (unsigned from = 1; from <= senders; ++from) ASSERT_TRUE(net.send(from, 0));
    }
    const std::vector<Delivery> got = net.run();
    EXPECT_GE(got.size(), 1000U);
    std::array<size_t, 8> shares{};
    for (const Delivery& each : got) ++shares[each.from];
    const auto [least, most] = std::minmax_element(shares.begin() + 1, shares.begin() + 1 + senders);
    EXPECT_LE(*most - *least, 10U) << senders;
    // The port is never idle while the packets are sent.
    EXPECT_EQ(got.back().time - got.front().time, 1000 * (got.size() - 1));
  }
}

TEST(SimSwitch, APartitionIsOfAPairAndOfOneWay) {
  Net net(6);
  net.fabric.path(1, 4).black_out(0, 5000);
  for (unsigned from = 0; from < 6; ++from) {
    for (unsigned to = 0; to < 6; ++to) {
      if (from == to) continue;
      ASSERT_TRUE(net.send(from, to));
    }
  }
  std::set<std::pair<unsigned, unsigned>> pairs;
  for (const Delivery& each : net.run()) pairs.insert({each.from, each.to});
  EXPECT_EQ(pairs.size(), 29U);
  EXPECT_FALSE(pairs.contains({1, 4}));
  EXPECT_TRUE(pairs.contains({4, 1}));
  EXPECT_EQ(net.stats(1, 4).blacked_out, 1U);
  ASSERT_TRUE(net.send(1, 4));
  EXPECT_EQ(net.run().back(), (Delivery{kSecond + 2501, 1, 4, 0}));
}

TEST(SimSwitch, ABlackoutLosesWhatArrivesInIt) {
  Net net(3);
  net.fabric.path(0, 1).black_out(2000, 3000);
  ASSERT_TRUE(net.send(0, 1, 1));  // arrives at 2501
  ASSERT_TRUE(net.send(0, 1, 2));
  const std::vector<Delivery> expected = {{3501, 0, 1, 2}};
  EXPECT_EQ(net.run(), expected);
}

TEST(SimSwitch, FaultsArePerPair) {
  Net net(4);
  net.fabric.path(0, 1).set_faults({.loss = 1});
  net.fabric.path(0, 2).set_faults({.duplicate = 1});
  net.fabric.path(0, 3).set_faults({.busy = 1});
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_TRUE(net.send(0, 1));
    EXPECT_TRUE(net.send(0, 2));
    EXPECT_FALSE(net.send(0, 3));
    EXPECT_TRUE(net.send(1, 0));
  }
  const std::vector<Delivery> got = net.run();
  EXPECT_EQ(std::ranges::count(got, 2U, &Delivery::to), 6);
  EXPECT_EQ(std::ranges::count(got, 0U, &Delivery::to), 3);
  EXPECT_EQ(got.size(), 9U);
  net.fabric.set_faults({});
  EXPECT_TRUE(net.send(0, 1));
  EXPECT_TRUE(net.send(0, 3));
  EXPECT_TRUE(net.send(2, 3));
  EXPECT_EQ(net.run().size(), 12U);
}

TEST(SimSwitch, FaultsOfAllHitEveryPairWithDiceOfItsOwn) {
  Net net(3, {.bits_per_second = 8'000'000'000, .delay = 500, .queue_bytes = size_t{1} << 30}, {.loss = 0.5});
  std::vector<uint8_t> lost;
  for (unsigned i = 0; i < 200; ++i) {
    ASSERT_TRUE(net.send(0, 1, static_cast<uint8_t>(i)));
    ASSERT_TRUE(net.send(0, 2, static_cast<uint8_t>(i)));
  }
  std::vector<std::vector<uint8_t>> got(3);
  for (const Delivery& each : net.run()) got[each.to].push_back(each.number);
  EXPECT_NE(got[1], got[2]);
  for (const unsigned to : {1U, 2U}) {
    EXPECT_GT(net.stats(0, to).lost, 60U);
    EXPECT_LT(net.stats(0, to).lost, 140U);
    EXPECT_EQ(net.stats(0, to).lost + got[to].size(), 200U);
  }
}

TEST(SimSwitch, ASlowPortSlowsWhatIsForIt) {
  Net net(3, {.bits_per_second = 8'000'000'000, .delay = 500});
  (void)net.fabric.set_port(2, {.bits_per_second = 800'000'000, .delay = 1000});
  ASSERT_TRUE(net.send(0, 2, 1));
  ASSERT_TRUE(net.send(0, 1, 2));
  ASSERT_TRUE(net.send(2, 1, 3));
  const std::vector<Delivery> expected = {
      {2000 + 250 + 1000 + 250, 0, 1, 2}, {10000 + 500 + 1000 + 250, 2, 1, 3}, {1000 + 250 + 10000 + 500, 0, 2, 1}};
  EXPECT_EQ(net.run(), expected);
}

// ---- Nodes around the switch

SimConfig around_switch(SimConfig config) {
  config.topology = SimTopology::kSwitch;
  return config;
}

TEST(SimNetSwitch, FunctionsOfPathsTakeAnyPair) {
  QuietNet quiet(around_switch(small(6)));
  quiet.net.black_out(0, 3, 0);
  quiet.net.black_out(5, 2, 0);
  quiet.net.set_faults(1, 4, {.loss = 1});
  EXPECT_EQ(quiet.net.stats(2, 5).packets, 0U);
  EXPECT_THROW((void)quiet.net.stats(2, 2), SetupError);
  EXPECT_THROW(quiet.net.black_out(0, 6, 0), SetupError);
  EXPECT_THROW(quiet.net.set_link(0, 1, kModel), SetupError);
  EXPECT_THROW(quiet.net.set_port(6, kModel), SetupError);
  quiet.net.set_port(5, kModel);
  SimNet cables(small(6));
  EXPECT_THROW(cables.set_port(0, kModel), SetupError);
  EXPECT_THROW(cables.black_out(0, 2, 0), SetupError);
}

TEST(SimNetSwitch, NodesSendThroughIt) {
  QuietNet quiet(around_switch(small(3)));
  quiet.send(0, 1, 1);
  quiet.send(2, 1, 2);
  quiet.net.run_until(10000);
  const std::vector<Delivery> expected = {{2500, 0, 1, 1}, {3500, 2, 1, 2}};
  EXPECT_EQ(quiet.deliveries, expected);
  EXPECT_EQ(quiet.net.stats().bytes, 2U * 934);
}

// The pairs include ranks that are not neighbours in the ring.
TEST(SimNetSwitch, APartitionedPairFailsItsOperations) {
  for (const unsigned other : {2U, 4U}) {
    SimConfig config = around_switch(raw(6));
    config.exchange.strategies = {find_strategy("direct")};
    SimNet net(config);
    WholeNumbers job(6, 1000000);
    job.submit(net);
    net.run_until(kMillisecond);
    const Nanos begin = net.now();
    net.black_out(1, other, begin);
    net.black_out(other, 1, begin);
    ASSERT_TRUE(net.run_until_idle(begin + config.exchange.peer_timeout + kSecond)) << other;
    for (unsigned i = 0; i < 6; ++i) {
      ASSERT_EQ(net.node(i).completions().size(), 1U);
      const Failure& failure = net.node(i).completions()[0].failure;
      EXPECT_EQ(failure.code, FailureCode::kSilent) << other;
      EXPECT_TRUE(failure.rank == 1 || failure.rank == other) << failure_text(failure);
    }
  }
}

TEST(SimNetSwitch, CablesDoNotReachWhomOtherStrategiesNeed) {
  SimConfig config = raw(6);
  config.exchange.strategies = {find_strategy("direct")};
  EXPECT_THROW(SimNet net(config), SetupError);
  EXPECT_NO_THROW(SimNet net(around_switch(config)));
}

TEST(SimNetSwitch, AllReduceInWorldsOfSeveralSizes) {
  for (const unsigned nodes : {1U, 2U, 3U, 8U, 256U}) {
    SimNet net(around_switch(raw(nodes)));
    WholeNumbers job(nodes, 10000);
    job.submit(net);
    ASSERT_TRUE(net.run_until_idle(kSecond)) << nodes;
    EXPECT_TRUE(job.right()) << nodes;
    EXPECT_EQ(net.count(Counter::kOperationsDone), nodes);
    EXPECT_EQ(net.stats().queue_drops, 0U);
  }
}

TEST(SimNetSwitch, ARunIsAFunctionOfTheSeed) {
  const Trace first = trace_of(around_switch(raw(4, 1)));
  const Trace again = trace_of(around_switch(raw(4, 1)));
  EXPECT_EQ(again.hash, first.hash);
  EXPECT_EQ(again.end, first.end);
  EXPECT_EQ(again.stats.wire_bytes, first.stats.wire_bytes);
  EXPECT_GT(first.stats.lost, 0U);
  EXPECT_NE(trace_of(around_switch(raw(4, 2))).hash, first.hash);
}

}  // namespace
}  // namespace gradlane::test::switch_test
