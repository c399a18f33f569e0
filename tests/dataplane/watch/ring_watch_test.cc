// ring_watch_test.cc - facts of a ring in, lines of the log out
#include "dataplane/watch/ring_watch.h"

#include <gtest/gtest.h>

namespace gradlane::test::ring_watch_test {
namespace {

using Level = RingLine::Level;
using PortState = NeighbourFacts::PortState;

constexpr Nanos kStart = 1000 * kSecond;

// Returns a neighbour that is not up, and has no other problem.
NeighbourFacts missing(unsigned node = 2) {
  NeighbourFacts facts;
  facts.node = node;
  facts.address = "10.77.0." + std::to_string(node + 1);
  facts.port = "e0";
  facts.mac_known = true;
  return facts;
}

NeighbourFacts up(unsigned node = 2) {
  NeighbourFacts facts = missing(node);
  facts.up = true;
  return facts;
}

RingFacts ring(std::vector<NeighbourFacts> neighbours) {
  RingFacts facts;
  facts.node = 1;
  facts.udp_port = 18400;
  facts.known = true;
  facts.neighbours = std::move(neighbours);
  return facts;
}

RingFacts whole_ring() {
  RingFacts facts = ring({up()});
  facts.ready = true;
  return facts;
}

Failure other_mtu() { return {FailureCode::kRefused, 2, Field::kMtu, 1500, 9000}; }

struct Case {
  const char* name;
  void (*change)(NeighbourFacts&);
  Nanos missing_for;
  const char* text;
};

const Case kCases[] = {
    {"two machines at once",
     [](NeighbourFacts& it) {
       it.refused = {FailureCode::kDuplicateRank, 2, Field::kNone, kMacSource | 1, kMacSource | 2};
     },
     5 * kSecond,
     "refused: rank 2 is used by two machines, 01:00:00:00:00:00 and 02:00:00:00:00:00: does one of them use the "
     "configuration of another node?"},
    {"up", [](NeighbourFacts& it) { it.up = true; }, 0, ""},
    {"link down", [](NeighbourFacts& it) { it.port_state = PortState::kDown; }, 5 * kSecond, "port e0: link is down"},
    {"link down inside the machine",
     [](NeighbourFacts& it) {
       it.port_state = PortState::kDown;
       it.local = true;
     },
     5 * kSecond, "port e0: link is down: the daemon of node 2 is not running"},
    {"not started",
     [](NeighbourFacts& it) {
       it.port_state = PortState::kStarting;
       it.local = true;
     },
     5 * kSecond, "port e0: not started yet: the daemon of node 2 is not running"},
    {"no ARP yet",
     [](NeighbourFacts& it) {
       it.mac_known = false;
       it.arp_tries = 1;
     },
     kSecond / 10, "no answer from 10.77.0.3 on port e0 yet (ARP, 1 try)"},
    {"no ARP",
     [](NeighbourFacts& it) {
       it.mac_known = false;
       it.arp_tries = 50;
     },
     5 * kSecond, "no answer from 10.77.0.3 on port e0 after 5 s (ARP, 50 tries)"},
    {"another key", [](NeighbourFacts& it) { it.forged = 7; }, 5 * kSecond,
     "packets of node 2 (10.77.0.3) have wrong tags (7 so far): its auth.key_file or security differs"},
    {"no key there", [](NeighbourFacts& it) { it.forged = it.untagged = 7; }, 5 * kSecond,
     "packets of node 2 (10.77.0.3) have no tags (7 so far): it has no auth.key_file, but this node has one"},
    {"no key here",
     [](NeighbourFacts& it) {
       it.tagged = 3;
       it.heard = true;
     },
     5 * kSecond,
     "packets of node 2 (10.77.0.3) have tags, but this node has no key: set the same security and auth.key_file on "
     "all "
     "nodes"},
    {"this node has a wrong address", [](NeighbourFacts& it) { it.asks_for = 0x0a4d0002; }, 5 * kSecond,
     "node 2 (10.77.0.3) sends ARP requests for 10.77.0.2, which is not in `nodes` here: `nodes` must be the same in "
     "both files"},
    {"it has a wrong address",
     [](NeighbourFacts& it) {
       it.speaks_from = "10.77.0.9";
       it.mac_known = false;
     },
     5 * kSecond,
     "node 2 sends from 10.77.0.9, but `nodes` has 10.77.0.3 here: `nodes` must be the same in both files"},
    {"another ToS",
     [](NeighbourFacts& it) {
       it.wrong_tos = 12;
       it.last_tos = 4;
     },
     5 * kSecond,
     "12 packets of node 2 (10.77.0.3) were dropped, because their ToS is not in `tos` (last: 0x04): a switch on the "
     "path rewrites DSCP, or `tos` differs there; run gradlane check"},
    {"another UDP port", [](NeighbourFacts& it) { it.other_port = 18500; }, 5 * kSecond,
     "packets of node 2 (10.77.0.3) arrive at UDP port 18500, which this node does not use: `udp_port` must be the "
     "same on all nodes"},
    {"one way", [](NeighbourFacts& it) { it.heard = true; }, 6 * kSecond,
     "packets of node 2 (10.77.0.3) arrive, but it has not received any from this node for 6 s: check UDP port 18400 "
     "there, and its log"},
    {"heard, and somebody else forges",
     [](NeighbourFacts& it) {
       it.heard = true;
       it.forged = 7;
     },
     kSecond - 1,
     "packets of node 2 (10.77.0.3) arrive, but it has not received any from this node yet: check UDP port 18400 "
     "there, and its log"},
    {"no hello yet", [](NeighbourFacts&) {}, kSecond - 1,
     "no hello from node 2 (10.77.0.3) yet: its daemon is not running, or UDP port 18400 is filtered"},
    {"no hello", [](NeighbourFacts&) {}, 75 * kSecond,
     "no hello from node 2 (10.77.0.3) for 75 s: its daemon is not running, or UDP port 18400 is filtered"},
    {"refused",
     [](NeighbourFacts& it) {
       it.refused = other_mtu();
       it.heard = true;
       it.forged = 1;
     },
     5 * kSecond, "refused: rank 2 of node 2 (10.77.0.3) is configured differently: mtu: 1500 here, 9000 there"},
    {"refused, and then unplugged",
     [](NeighbourFacts& it) {
       it.refused = other_mtu();
       it.port_state = PortState::kDown;
     },
     5 * kSecond, "port e0: link is down"},
};

TEST(RingWatch, MostConcreteReasonFirst) {
  for (const Case& it : kCases) {
    NeighbourFacts facts = missing();
    it.change(facts);
    EXPECT_EQ(missing_text(facts, 18400, it.missing_for), it.text) << it.name;
  }
}

// ---- Times of the lines

class RingWatchTest : public testing::Test {
 protected:
  // Calls look() every 100 ms for `time`. Returns all lines, each with its time in ms.
  std::vector<std::pair<Nanos, RingLine>> watch(const RingFacts& facts, Nanos time) {
    std::vector<std::pair<Nanos, RingLine>> lines;
    for (const Nanos end = now_ + time; now_ < end; now_ += 100 * kMillisecond) {
      for (const RingLine& line : watch_.look(facts, now_)) lines.emplace_back((now_ - kStart) / kMillisecond, line);
    }
    return lines;
  }
  RingWatch watch_;
  Nanos now_ = kStart;
};

TEST_F(RingWatchTest, EveryFiveSecondsALinePerMissingNeighbour) {
  RingFacts facts = ring({up(0), missing(2)});
  const auto lines = watch(facts, 12 * kSecond);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].first, 5000U);
  EXPECT_EQ(lines[0].second.level, Level::kWarning);
  EXPECT_EQ(lines[0].second.text,
            "node 1: node 2 is missing: no hello from node 2 (10.77.0.3) for 5 s: its daemon is not running, or UDP "
            "port 18400 is filtered");
  EXPECT_EQ(lines[1].first, 10'000U);
  facts.neighbours[0] = missing(0);
  EXPECT_EQ(watch(facts, 5 * kSecond).size(), 2U);
}

// A node with links to all others may miss all of them at once.
TEST_F(RingWatchTest, OfManyThatAreMissingMostAreInOneLine) {
  std::vector<NeighbourFacts> all;
  for (unsigned node = 2; node < 14; ++node) all.push_back(missing(node));
  all[3] = up(5);
  all[11].refused = other_mtu();
  auto lines = watch(ring(all), 100 * kMillisecond);  // at once, because one node is refused
  ASSERT_EQ(lines.size(), 9U);
  EXPECT_EQ(lines[0].second.level, Level::kError);
  EXPECT_TRUE(lines[0].second.text.starts_with("node 1: node 13 is missing: refused")) << lines[0].second.text;
  EXPECT_TRUE(lines[7].second.text.starts_with("node 1: node 9 is missing: no hello")) << lines[7].second.text;
  EXPECT_EQ(lines[8].second, (RingLine{Level::kWarning, "node 1: 3 more are missing: nodes 10, 11, 12"}));
  all[10] = up(12);
  all[9] = up(11);
  lines = watch(ring(all), 6 * kSecond);
  ASSERT_EQ(lines.size(), 9U);
  EXPECT_EQ(lines[8].second.text, "node 1: 1 more is missing: node 10");
}

TEST_F(RingWatchTest, WholeIsSaidOnceAndTroubleAfterItSoon) {
  EXPECT_EQ(watch(ring({missing()}), 2 * kSecond).size(), 0U);
  auto lines = watch(whole_ring(), 20 * kSecond);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].second, (RingLine{Level::kInfo, "node 1: the ring is ready"}));
  EXPECT_EQ(watch(ring({missing()}), 300 * kMillisecond).size(), 0U) << "generations follow one another";
  EXPECT_EQ(watch(whole_ring(), kSecond).size(), 0U);
  lines = watch(ring({missing()}), 6 * kSecond);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].first - lines[0].first, 5000U);
  EXPECT_EQ(watch(whole_ring(), kSecond).size(), 1U);
}

TEST_F(RingWatchTest, NothingIsKnownAtFirst) {
  RingFacts facts = ring({missing()});
  facts.known = false;
  EXPECT_EQ(watch(facts, 20 * kSecond).size(), 0U);
}

TEST_F(RingWatchTest, RefusalsAreErrorsAtOnceAndAgain) {
  RingFacts facts = ring({missing()});
  EXPECT_EQ(watch(facts, kSecond).size(), 0U);
  facts.neighbours[0].refused = other_mtu();
  auto lines = watch(facts, 6 * kSecond);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].first, 1000U);
  EXPECT_EQ(lines[0].second.level, Level::kError);
  EXPECT_EQ(lines[1].first, 6000U);
  facts.neighbours[0].refused.field = Field::kCodec;
  EXPECT_EQ(watch(facts, kSecond).size(), 1U) << "another field is news";
  // A refusal disappears and returns with each generation. It is not logged each time.
  facts.neighbours[0].refused = {};
  EXPECT_EQ(watch(facts, 200 * kMillisecond).size(), 0U);
  facts.neighbours[0].refused = other_mtu();
  facts.neighbours[0].refused.field = Field::kCodec;
  EXPECT_EQ(watch(facts, 200 * kMillisecond).size(), 0U);
}

TEST_F(RingWatchTest, NeighboursAreThereButSomebodyIsNot) {
  RingFacts facts = ring({up(0), up(2)});
  facts.ranks_per_node = 2;
  facts.missing = 7;
  auto lines = watch(facts, 5100 * kMillisecond);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].second.text,
            "node 1: the ring is not ready: this node's neighbours are connected, but nothing was heard from rank 7 on "
            "node 3; see its log and the logs of its neighbours");
  facts.missing = 2;  // a rank of this node
  lines = watch(facts, 5 * kSecond);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(
      lines[0].second.text,
      "node 1: the ring is not ready: packets of the neighbours arrive, but they do not answer: check that packets "
      "of this node arrive there, at UDP port 18400");
  facts.rival = "02:00:00:00:00:07";
  lines = watch(facts, 5 * kSecond);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(
      lines[0].second.text,
      "node 1: the ring is not ready: 02:00:00:00:00:07 uses this node's address, too, and neighbours refuse both");
}

TEST_F(RingWatchTest, OnlyForgeriesSinceItWasUpCount) {
  RingFacts facts = whole_ring();
  facts.neighbours[0].forged = 40;
  (void)watch(facts, kSecond);
  facts.ready = false;
  facts.neighbours[0].up = false;
  (void)watch(facts, 2 * kSecond);
  EXPECT_TRUE(watch_.neighbours()[0].why.starts_with("no hello from node 2 (10.77.0.3) for 1 s"))
      << watch_.neighbours()[0].why;
  facts.neighbours[0].forged = 43;
  (void)watch(facts, kSecond);
  EXPECT_NE(watch_.neighbours()[0].why.find("have wrong tags (3 so far)"), std::string::npos);
  // No more forged packets come, so they were not the reason.
  (void)watch(facts, 3 * kSecond);
  EXPECT_TRUE(watch_.neighbours()[0].why.starts_with("no hello from")) << watch_.neighbours()[0].why;
  (void)watch(whole_ring(), kSecond);
  EXPECT_EQ(watch_.neighbours()[0].why, "");
}

}  // namespace
}  // namespace gradlane::test::ring_watch_test
