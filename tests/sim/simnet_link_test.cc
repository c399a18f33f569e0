// simnet_link_test.cc - the parts of the simulated network: the order of events, and links with their times and faults
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "sim/link.h"
#include "sim/schedule.h"

namespace gradlane::test::simnet_link_test {
namespace {

constexpr size_t kOverhead = kUdpIpBytes + kEthernetOverhead;
static_assert(kOverhead == 66);

// ---- The schedule

TEST(Schedule, GivesSourcesInOrderOfTimeThenNumber) {
  constexpr size_t kSources = 37;
  Schedule schedule(kSources);
  std::set<std::pair<Nanos, size_t>> expected;
  std::vector<Nanos> times(kSources, kNever);
  for (size_t i = 0; i < kSources; ++i) expected.insert({kNever, i});
  Random random(1);
  for (int i = 0; i < 10000; ++i) {
    const size_t source = random.below(kSources);
    const Nanos time = random.chance(0.2) ? kNever : random.below(50);
    expected.erase({times[source], source});
    expected.insert({time, source});
    times[source] = time;
    schedule.set(source, time);
    ASSERT_EQ(schedule.time(), expected.begin()->first);
    ASSERT_EQ(schedule.source(), expected.begin()->second);
    ASSERT_EQ(schedule.time_of(source), time);
  }
}

// ---- A link

std::vector<uint8_t> packet_of(size_t bytes, uint8_t number = 0) { return std::vector<uint8_t>(bytes, number); }

struct Arrival {
  Nanos time;
  std::vector<uint8_t> packet;
  bool operator==(const Arrival&) const = default;
};

class LinkTest : public testing::Test {
 protected:
  void send(Nanos now, size_t bytes, uint8_t number = 0) { link.send(packet_of(bytes, number), now, pool); }

  // Returns all packets in transit, in the order of their arrival. Expects that all buffers are free afterwards.
  std::vector<Arrival> arrivals() {
    std::vector<Arrival> list;
    while (link.due() != kNever) {
      const Nanos time = link.due();
      SimBuffer* const buffer = link.arrive(pool);
      if (buffer == nullptr) continue;
      list.push_back({time, {buffer->data(), buffer->data() + buffer->bytes}});
      pool.give(buffer);
    }
    EXPECT_EQ(pool.taken(), 0U);
    return list;
  }

  SimPool pool{2000};
  SimLink link{0, 1, 1};
};

TEST_F(LinkTest, PacketsLeaveAtItsRateAndArriveAfterItsDelay) {
  const std::vector<uint64_t> rates = {10'000'000'000, 3'000'000'000, 100'000'000'000, 777};
  for (const uint64_t rate : rates) {
    link = SimLink(0, 1, 1);
    link.set_model({.bits_per_second = rate, .delay = 25000, .queue_bytes = 1 << 20});
    uint64_t bits = 0;
    std::vector<Nanos> expected;
    for (size_t i = 0; i < 200; ++i) {
      send(1000, 100 + i);
      bits += 8 * (100 + i + kOverhead);
      expected.push_back(1000 + static_cast<Nanos>(bits * kSecond / rate) + 25000);
    }
    const std::vector<Arrival> got = arrivals();
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].time, expected[i]) << rate << ", packet " << i;
    EXPECT_EQ(link.stats().wire_bytes * 8, bits);
    EXPECT_EQ(link.stats().bytes, link.stats().wire_bytes - 200 * kOverhead);
  }
}

TEST_F(LinkTest, AnIdleLinkSendsAtOnce) {
  link.set_model({.bits_per_second = 8'000'000'000, .delay = 10});
  send(0, 934);  // 1000 ns
  send(5000, 934);
  send(5500, 934);
  const std::vector<Arrival> got = arrivals();
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].time, 1010U);
  EXPECT_EQ(got[1].time, 6010U);
  EXPECT_EQ(got[2].time, 7010U);
}

TEST_F(LinkTest, TheQueueDropsWhatDoesNotFit) {
  link.set_model({.bits_per_second = 8'000'000'000, .delay = 0, .queue_bytes = 10000});
  for (int i = 0; i < 20; ++i) send(0, 934);
  EXPECT_EQ(link.stats().packets, 10U);
  EXPECT_EQ(link.stats().queue_drops, 10U);
  send(999, 934);
  EXPECT_EQ(link.stats().queue_drops, 11U);
  send(1000, 934);  // one packet has left the queue
  EXPECT_EQ(link.stats().packets, 11U);
  EXPECT_EQ(arrivals().size(), 11U);
}

TEST_F(LinkTest, ABlackoutLosesWhatEntersAndWhatArrives) {
  link.set_model({.bits_per_second = 8'000'000'000, .delay = 100});
  link.black_out(1000, 2000);
  send(0, 34, 1);     // arrives at 200
  send(850, 34, 2);   // arrives at 1050, in the blackout
  send(1000, 34, 3);  // enters in the blackout
  send(1999, 34, 4);
  send(2000, 34, 5);
  const std::vector<Arrival> got = arrivals();
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].packet, packet_of(34, 1));
  EXPECT_EQ(got[1].packet, packet_of(34, 5));
  EXPECT_EQ(link.stats().blacked_out, 3U);
  EXPECT_EQ(link.stats().packets, 5U);  // lost packets occupy the link, too
}

// Expects that the share is right within five standard deviations.
void expect_share(uint64_t count, uint64_t of, double share) {
  const double n = static_cast<double>(of);
  EXPECT_NEAR(static_cast<double>(count), n * share, 5 * std::sqrt(n * share * (1 - share)));
}

TEST_F(LinkTest, FaultsComeAsOftenAsAskedFor) {
  constexpr unsigned kPackets = 50000;
  link.set_faults({.loss = 0.03, .duplicate = 0.02, .reorder = 0.1, .corrupt = 0.05, .busy = 0.2});
  uint64_t refused = 0;
  for (Nanos i = 0; i < kPackets; ++i) {
    refused += link.refuses() ? 1 : 0;
    send(i * 1000, 100);
  }
  const size_t arrived = arrivals().size();
  const LinkStats& stats = link.stats();
  const uint64_t copies = kPackets - stats.lost + stats.duplicated;
  EXPECT_EQ(arrived, copies);
  EXPECT_EQ(stats.delivered, copies);
  EXPECT_EQ(stats.busy, refused);
  expect_share(stats.lost, kPackets, 0.03);
  expect_share(stats.duplicated, kPackets - stats.lost, 0.02);
  expect_share(stats.reordered, copies, 0.1);
  expect_share(stats.corrupted, copies, 0.05);
  expect_share(stats.busy, kPackets, 0.2);
}

TEST_F(LinkTest, CertainFaultsHitEveryPacket) {
  link.set_faults({.loss = 1});
  for (int i = 0; i < 100; ++i) send(0, 100);
  EXPECT_EQ(arrivals().size(), 0U);
  link.set_faults({.duplicate = 1});
  for (int i = 0; i < 100; ++i) send(0, 100);
  EXPECT_EQ(arrivals().size(), 200U);
}

TEST_F(LinkTest, DamagedPacketsDifferInUpToEightBitsOrEndEarly) {
  link.set_faults({.corrupt = 1});
  const std::vector<uint8_t> sent = packet_of(100);
  size_t cut = 0;
  std::set<int> flips;
  for (Nanos i = 0; i < 2000; ++i) send(i * 1000, sent.size());
  for (const Arrival& arrival : arrivals()) {
    if (arrival.packet.size() < sent.size()) {
      EXPECT_TRUE(std::equal(arrival.packet.begin(), arrival.packet.end(), sent.begin()));
      ++cut;
      continue;
    }
    int bits = 0;
    for (size_t i = 0; i < sent.size(); ++i) bits += std::popcount(static_cast<unsigned>(arrival.packet[i] ^ sent[i]));
    flips.insert(bits);
  }
  expect_share(cut, 2000, 0.25);
  EXPECT_EQ(flips, (std::set<int>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_F(LinkTest, ReorderedPacketsAreLateByUpToTheBound) {
  link.set_model({.bits_per_second = 8'000'000'000, .delay = 0});
  link.set_faults({.reorder = 0.5, .reorder_delay = 5000});
  for (unsigned i = 0; i < 200; ++i) send(Nanos{i} * 1000, 934, static_cast<uint8_t>(i));
  Nanos before = 0;
  Nanos latest = 0;
  uint64_t overtakes = 0;
  uint8_t highest = 0;
  for (const Arrival& arrival : arrivals()) {
    EXPECT_GE(arrival.time, before);
    before = arrival.time;
    const uint8_t number = arrival.packet.back();
    const Nanos on_time = (Nanos{number} + 1) * 1000;
    ASSERT_GE(arrival.time, on_time);
    latest = std::max(latest, arrival.time - on_time);
    overtakes += number < highest ? 1 : 0;
    highest = std::max(highest, number);
  }
  EXPECT_GT(overtakes, 20U);
  EXPECT_LE(latest, 5000U);
  EXPECT_GT(latest, 4000U);
}

TEST_F(LinkTest, FaultsAreAFunctionOfTheSeed) {
  const auto run = [this](uint64_t seed) {
    link = SimLink(0, 1, seed);
    link.set_faults({.loss = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.1});
    for (Nanos i = 0; i < 1000; ++i) send(i * 1000, 100, static_cast<uint8_t>(i));
    return arrivals();
  };
  const std::vector<Arrival> first = run(1);
  EXPECT_EQ(run(1), first);
  EXPECT_NE(run(2), first);
}

}  // namespace
}  // namespace gradlane::test::simnet_link_test
