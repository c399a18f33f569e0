// packets_test.cc - packets that were sampled at the sender, matched with the samples of the receiver
#include "tools/trace/packets.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradlane::test::trace_packets_test {
namespace {

TracePacket packet(bool in, unsigned peer, uint32_t sequence, Nanos at) {
  return {.head = 0,
          .session = 5,
          .what = (in ? uint64_t{TracePacket::kIn} : 0) | uint64_t{peer} << 8 | uint64_t{sequence} << 32,
          .bytes = 1000,
          .at = at};
}

// Returns the sampled packets of two nodes. The first node has sent the packets `sent`.
std::vector<SampledPacket> of(const std::vector<TracePacket>& sent, const std::vector<TracePacket>& came) {
  static std::vector<NodeRecording> nodes;
  nodes.assign(2, {});
  for (unsigned node = 0; node < 2; ++node) {
    nodes[node].node = node;
    nodes[node].lanes.resize(1);
    nodes[node].lanes[0].rank = node;
  }
  nodes[0].lanes[0].packets = sent;
  nodes[1].lanes[0].packets = came;
  return sampled_packets(nodes);
}

TEST(TracePackets, TheFirstCopyIsTheArrival) {
  const auto packets = of({packet(false, 1, 8, 100)}, {packet(true, 0, 8, 900), packet(true, 0, 8, 150)});
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].sent, 100U);
  EXPECT_EQ(packets[0].came, 150U);
}

// The copy that arrived is the latest one that was sent before the arrival. A later copy was a needless retransmit.
TEST(TracePackets, TheLastCopyBeforeTheArrivalIsTheOneThatCame) {
  const auto packets =
      of({packet(false, 1, 8, 100), packet(false, 1, 8, 500), packet(false, 1, 8, 800)}, {packet(true, 0, 8, 600)});
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].sent, 500U);
  EXPECT_EQ(packets[0].came, 600U);
}

TEST(TracePackets, WhatDidNotComeHasNoArrival) {
  const auto packets = of({packet(false, 1, 8, 100), packet(false, 1, 16, 50)}, {packet(true, 0, 8, 200)});
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].sequence, 16U);
  EXPECT_EQ(packets[0].came, 0U);
  EXPECT_EQ(packets[1].came, 200U);
}

}  // namespace
}  // namespace gradlane::test::trace_packets_test
