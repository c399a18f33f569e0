// path_watch_test.cc - probes for the MTU of paths: their times and their results, on paths that change in virtual time
#include "dataplane/watch/path_watch.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>

namespace gradlane::test::path_watch_test {
namespace {

constexpr size_t kOverhead = 28;

// Two neighbours, each at the end of its own path. A worker polls every 100 us. The control thread steps every 2 ms and
// looks every 100 ms.
class Ways {
 public:
  explicit Ways(size_t mtu = 1500)
      : watch_(setups(mtu), {&boards_[0], &boards_[1]}, {&paths[0], &paths[1]}, [this] { return ++nonce_; }) {
    for (unsigned i = 0; i < 2; ++i) {
      limit[i] = mtu;
      facts[i].node = i + 1;
      facts[i].address = "10.77.0." + std::to_string(2 + i);
      facts[i].up = facts[i].mac_known = true;
    }
  }

  void run(Nanos time) {
    for (const Nanos end = now + time; now < end;) {
      if (now % (100 * kMillisecond) == 0) {
        for (const RingLine& line : watch_.look(0, facts, now)) log.push_back(line.text);
      }
      for (int i = 0; i < 20; ++i) poll();
      watch_.step(now);
    }
  }

  std::array<NeighbourFacts, 2> facts;
  std::array<size_t, 2> limit{};  // length of the longest packets that arrive, per neighbour
  std::array<bool, 2> answers{true, true};
  std::array<std::atomic<uint32_t>, 2> paths{};
  std::array<unsigned, 2> sent{};
  std::vector<std::string> log;
  Nanos now = kSecond;

 private:
  std::vector<ProbeRun::Setup> setups(size_t mtu) {
    std::vector<ProbeRun::Setup> all(2);
    for (ProbeRun::Setup& it : all) it = {.mac = &mac_, .tos = {0x28, 0x20, 0xc0}, .mtu = mtu, .overhead = kOverhead};
    return all;
  }

  void poll() {
    now += 100 * kMicrosecond;
    for (unsigned i = 0; i < 2; ++i) {
      ProbeOrder order;
      while (boards_[i].next(now, order)) {
        ++sent[i];
        if (!answers[i] || order.bytes + kOverhead > limit[i]) continue;
        ProbeHeader header{};
        header.id = order.id;
        header.nonce = order.nonce;
        header.tos = order.tos;
        replies_.push_back({i, reply_to(header, {}, order.tos, order.bytes + kOverhead), order.bytes, now + rtt});
      }
    }
    for (; !replies_.empty() && replies_.front().at <= now; replies_.pop_front()) {
      const Reply& it = replies_.front();
      (void)boards_[it.from].put_answer(it.header, it.header.tos, it.bytes, now);
    }
  }

  static constexpr Nanos rtt = 300 * kMicrosecond;
  struct Reply {
    unsigned from;
    ProbeHeader header;
    size_t bytes;
    Nanos at;
  };
  std::atomic<uint64_t> mac_{1};
  std::array<ProbeBoard, 2> boards_;
  uint64_t nonce_ = 0;
  std::deque<Reply> replies_;
  PathWatch watch_;
};

TEST(PathWatch, AsksSeldomWhereAllIsWell) {
  Ways ways;
  ways.run(kSecond);
  EXPECT_EQ(ways.sent[0], 2U);  // a short probe and a long one
  ways.run(29 * kSecond);
  EXPECT_EQ(ways.sent[0], 6U);
  EXPECT_EQ(ways.sent[1], 6U);
  EXPECT_TRUE(ways.log.empty());
}

TEST(PathWatch, AsksNobodyWhoIsNotThere) {
  Ways ways;
  ways.facts[0].up = false;
  ways.facts[1].local = true;
  ways.run(30 * kSecond);
  EXPECT_EQ(ways.sent[0] + ways.sent[1], 0U);
}

// Packets of the exchange arrive, so no probe is needed.
TEST(PathWatch, LeavesWaysAloneThatCarry) {
  Ways ways;
  for (int i = 0; i < 300; ++i) {
    ways.facts[0].waiting_since = ways.now;
    ways.run(100 * kMillisecond);
  }
  EXPECT_EQ(ways.sent[0], 0U);
  EXPECT_EQ(ways.sent[1], 6U);
}

// A port that stalls on a long frame is probed only while full packets of the exchange are not acknowledged.
TEST(PathWatch, AsksPortsThatStickOnlyWherePacketsStick) {
  Ways ways;
  ways.facts[0].stalls_on_long_frame = true;
  ways.run(30 * kSecond);
  EXPECT_EQ(ways.sent[0], 0U);
  ways.limit[0] = 1400;
  ways.facts[0].waiting_since = ways.now;
  ways.run(2 * kSecond);
  EXPECT_EQ(ways.paths[0], 1400U);
}

TEST(PathWatch, NarrowsAndWidens) {
  for (const size_t mtu : {size_t{600}, size_t{1500}, size_t{9000}}) {
    for (const size_t limit : {size_t{576}, size_t{577}, mtu * 9 / 10 + 40, mtu - 1}) {
      Ways ways(mtu);
      ways.run(kSecond);
      ways.limit[1] = limit;
      ways.facts[1].waiting_since = ways.now;
      ways.run(1300 * kMillisecond);  // less than the default peer_timeout
      EXPECT_EQ(ways.paths[0], 0U);
      EXPECT_EQ(ways.paths[1], limit) << mtu;
      ways.run(20 * kSecond);
      const std::string number = std::to_string(limit);
      ASSERT_EQ(ways.log.size(), 1U);
      EXPECT_EQ(ways.log[0], "node 0: the path to node 2 (10.77.0.3) takes packets of at most " + number +
                                 " bytes, but mtu is " + std::to_string(mtu) + ": set mtu: " + number +
                                 " on all nodes (found by probes)");
      ways.limit[1] = mtu;
      ways.facts[1].waiting_since = 0;
      ways.run(3 * kSecond);
      EXPECT_EQ(ways.paths[1], 0U);
      ASSERT_EQ(ways.log.size(), 2U);
      EXPECT_EQ(ways.log[1],
                "node 0: the path to node 2 (10.77.0.3) takes packets of mtu " + std::to_string(mtu) + " again");
    }
  }
}

TEST(PathWatch, SaysNothingOfWhoDoesNotAnswer) {
  Ways ways;
  ways.run(kSecond);
  ways.answers[0] = false;
  ways.run(30 * kSecond);
  EXPECT_EQ(ways.paths[0], 0U);
  // A neighbour that disappears during a search leads to no wrong report.
  for (Nanos time = 0; time < 1500 * kMillisecond; time += 50 * kMillisecond) {
    Ways others;
    others.limit[0] = 1400;
    others.run(time);
    others.answers[0] = false;
    others.run(10 * kSecond);
    EXPECT_TRUE(others.paths[0] == 0 || others.paths[0] == 1400) << others.paths[0];
  }
}

TEST(PathWatch, FollowsAWayThatChanges) {
  Ways ways;
  for (const size_t limit : {1400U, 1280U, 1499U, 576U}) {
    ways.limit[0] = limit;
    ways.run(15 * kSecond);
    EXPECT_EQ(ways.paths[0], limit);
  }
  EXPECT_EQ(ways.log.size(), 4U);
}

}  // namespace
}  // namespace gradlane::test::path_watch_test
