// diagnosis_test.cc - tests of the diagnosis of silent links: from facts to cause and text; rings that lose packets
#include "collectives/diagnosis.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::diagnosis_test {
namespace {

struct Case {
  const char* name;
  LinkFacts facts;
  Field field;
  const char* text;
};

const Case kCases[] = {
    {"silent",
     {.self = 0, .peer = 1},
     Field::kNone,
     "rank 1 has been silent for too long: it has died, hangs, or cannot be reached"},
    {"silent, but its packets come with another ToS",
     {.self = 0, .peer = 1, .arrived_tos = 0},
     Field::kArrivedTos,
     "packets of rank 1 arrive at rank 0 with ToS 0x00, which is not in `tos`: a switch between them rewrites DSCP; "
     "run gradlane check on both"},
    {"silent; what it said of ours before is not why",
     {.self = 0, .peer = 1, .complained_tos = 4},
     Field::kNone,
     "rank 1 has been silent for too long: it has died, hangs, or cannot be reached"},
    {"ours come there with another ToS",
     {.self = 0,
      .peer = 1,
      .heard = true,
      .arrived_tos = 8,
      .complained_tos = 4,
      .blocked_bytes = 1500,
      .acked_bytes = 80},
     Field::kArrivedTos,
     "packets of rank 0 arrive at rank 1 with ToS 0x04, which is not in `tos`: a switch between them rewrites DSCP; "
     "run gradlane check on both"},
    {"long ones get lost",
     {.self = 2, .peer = 3, .heard = true, .blocked_bytes = 1500, .acked_bytes = 140},
     Field::kPacketSize,
     "packets of 1500 bytes from rank 2 do not arrive at rank 3, but those of 140 bytes do: the MTU of an interface or "
     "a switch port between them is too small; run gradlane check on both"},
    {"long ones get lost, and there were no others",
     {.self = 2, .peer = 3, .heard = true, .blocked_bytes = 9000},
     Field::kPacketSize,
     "packets of 9000 bytes from rank 2 do not arrive at rank 3, but short ones do: the MTU of an interface or a "
     "switch port between them is too small; run gradlane check on both"},
    {"probes have found how long they may be",
     {.self = 2, .peer = 3, .heard = true, .blocked_bytes = 1500, .acked_bytes = 140, .path_bytes = 1400},
     Field::kPathMtu,
     "packets of 1500 bytes from rank 2 do not arrive at rank 3: the path takes at most 1400 (found by probes): set "
     "mtu: 1400 on all nodes, or fix the path; run gradlane check on both"},
    {"one gets lost that probes say would not",
     {.self = 0, .peer = 1, .heard = true, .blocked_bytes = 1400, .acked_bytes = 1400, .path_bytes = 1400},
     Field::kNoAnswer,
     "rank 1 is heard, but packets of rank 0 do not arrive there: something on the way drops them; run gradlane check "
     "on both"},
    {"one gets lost, and another of its length did not",
     {.self = 0, .peer = 1, .heard = true, .blocked_bytes = 1500, .acked_bytes = 1500},
     Field::kNoAnswer,
     "rank 1 is heard, but packets of rank 0 do not arrive there: something on the way drops them; run gradlane check "
     "on "
     "both"},
    {"short ones get lost",
     {.self = 0, .peer = 1, .heard = true, .blocked_bytes = 120},
     Field::kNoAnswer,
     "rank 1 is heard, but packets of rank 0 do not arrive there: something on the way drops them; run gradlane check "
     "on "
     "both"},
};

TEST(Diagnosis, FromFactsToText) {
  for (const Case& it : kCases) {
    const Failure failure = diagnose(it.facts);
    EXPECT_EQ(failure.code, FailureCode::kSilent) << it.name;
    EXPECT_EQ(failure.rank, it.facts.peer) << it.name;
    EXPECT_EQ(failure.field, it.field) << it.name;
    EXPECT_EQ(failure_text(failure), it.text) << it.name;
  }
}

TEST(Diagnosis, WaysAreKeptWhole) {
  const PacketPath way = path_of(pack({.from = 255, .to = 3, .bytes = 9244}));
  EXPECT_EQ(way.from, 255);
  EXPECT_EQ(way.to, 3);
  EXPECT_EQ(way.bytes, 9244U);
}

// After the first operations, the wire from rank 0 to rank 1 loses all long packets. All ranks report that, and do so
// in time.
TEST(Diagnosis, LongPacketsGetLost) {
  for (const unsigned world : {2U, 3U, 8U}) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    EXPECT_TRUE(ring.works());
    ring.net().set_filter([](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      return from != 0 || to != 1 || packet.size() < 1000;
    });
    for (int round = 0; round < 2; ++round) {
      const auto jobs = ring.start(busy_jobs(world));
      EXPECT_TRUE(ring.finish(jobs, 4 * kSecond)) << "not long before operation_timeout";
      unsigned named = 0;
      for (const size_t job : jobs) {
        for (unsigned rank = 0; rank < world; ++rank) {
          const SimCompletion* const end = ring.end_of(job, rank);
          ASSERT_NE(end, nullptr);
          if (!end->failure) continue;
          EXPECT_EQ(end->failure.field, Field::kPacketSize) << failure_text(end->failure);
          const PacketPath way = path_of(end->failure.ours);
          EXPECT_EQ(way.from, 0U);
          EXPECT_EQ(way.to, 1U);
          EXPECT_GE(way.bytes, 1000U);
          EXPECT_LT(end->failure.theirs, 1000U);
          ++named;
        }
      }
      EXPECT_GE(named, world);
    }
    ring.net().set_filter(nullptr);
    ring.run_for(500 * kMillisecond);
    EXPECT_TRUE(ring.works());
  }
}

// Data packets from rank 0 reach rank 1 with a ToS byte of no class, so rank 1 drops them. Other packets arrive
// unchanged. The errors of all ranks name that ToS byte.
TEST(Diagnosis, AnotherToSIsWhatTheReceiverSays) {
  for (const unsigned world : {2U, 4U}) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    EXPECT_TRUE(ring.works());
    ring.net().set_filter([&ring](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      if (from != 0 || to != 1 || load<LinkHeader>(packet.data()).kind != PacketKind::kData) return true;
      ring.net().node(1).exchange().note_wrong_tos(0, 0x04, ring.net().now());
      return false;
    });
    const auto jobs = ring.start(busy_jobs(world));
    EXPECT_TRUE(ring.finish(jobs, 4 * kSecond));
    unsigned named = 0;
    for (const size_t job : jobs) {
      for (unsigned rank = 0; rank < world; ++rank) {
        const SimCompletion* const end = ring.end_of(job, rank);
        ASSERT_NE(end, nullptr);
        if (!end->failure) continue;
        EXPECT_EQ(end->failure.field, Field::kArrivedTos) << failure_text(end->failure);
        EXPECT_EQ(failure_text(end->failure).rfind("packets of rank 0 arrive at rank 1 with ToS 0x04", 0), 0U);
        ++named;
      }
    }
    EXPECT_GE(named, world);
    ring.net().set_filter(nullptr);
    ring.run_for(4 * kSecond);
    EXPECT_TRUE(ring.works());
  }
}

}  // namespace
}  // namespace gradlane::test::diagnosis_test
