// summary_test.cc - the node or link that holds a ring up, found in made-up traces
#include "tools/trace/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/trace/recordings.h"

namespace gradlane::test::trace_summary_test {
namespace {

using testing::HasSubstr;

constexpr unsigned kNodes = 4;
constexpr unsigned kOperations = 20;

std::string joined(const TraceSummary& summary) {
  std::string text;
  for (const std::string& line : summary_lines(summary)) text += line + "\n";
  return text;
}

// Turns `share` of a node's waits for packets into waits for the link to node `to`.
void fill_link(NodeRecording& node, unsigned to, double share) {
  TraceLink link{.rank = to};
  for (TraceOperation& it : node.lanes[0].operations) {
    Nanos& packets = it.waited[static_cast<size_t>(TraceCause::kPackets)];
    const auto full = static_cast<Nanos>(share * static_cast<double>(packets));
    it.waited[static_cast<size_t>(TraceCause::kLink)] = full;
    packets -= full;
    link.full += full;
  }
  node.lanes[0].links.push_back(link);
}

TEST(TraceSummaryTest, NobodyStandsOut) {
  const auto ring = ring_recording(kNodes, kOperations);
  const TraceSummary summary = summary_of(ring);
  EXPECT_EQ(summary.verdict, "no node stands out");
  EXPECT_FALSE(summary.held_up);
  ASSERT_EQ(summary.nodes.size(), kNodes);
  for (const NodeSummary& node : summary.nodes) {
    EXPECT_EQ(node.operations, kOperations);
    EXPECT_NEAR(node.took, 10e6, 1);
    EXPECT_NEAR(node.queued, 0.005, 1e-6);
    EXPECT_NEAR(node.waited[static_cast<size_t>(TraceCause::kPackets)], 0.995, 1e-6);
    EXPECT_EQ(node.for_whom[static_cast<size_t>(TraceCause::kPackets)], (node.node + 3) % kNodes);
    EXPECT_NEAR(node.encode, 3e5, 1);
    EXPECT_NEAR(node.cpu, 0.6 / 10.95, 1e-3);
    EXPECT_NEAR(node.idle, 0.95 / 10.95, 1e-3);
  }
  ASSERT_EQ(summary.links.size(), kNodes);
  for (const LinkSummary& link : summary.links) {
    EXPECT_EQ(link.delay, 1e5);
    EXPECT_EQ(link.packets, kOperations);
    EXPECT_EQ(link.lost, 0U);
  }
}

TEST(TraceSummaryTest, ASlowLink) {
  auto ring = ring_recording(kNodes, kOperations);
  fill_link(ring[1], 2, 0.7);
  for (TracePacket& it : ring[2].lanes[0].packets) {
    if ((it.what & TracePacket::kIn) != 0) it.at += 9 * kMillisecond;
  }
  const TraceSummary summary = summary_of(ring);
  EXPECT_TRUE(summary.held_up);
  EXPECT_THAT(summary.verdict, HasSubstr("slowest link: node 1 -> node 2: full in 70 %"));
  EXPECT_THAT(summary.verdict, HasSubstr("its packets take 9.10 ms, those of other links 100 us"));
  EXPECT_THAT(joined(summary), HasSubstr("70 of 2"));
  const nlohmann::json document = summary_json(summary);
  EXPECT_EQ(document["links"][0]["from"], 1);
  EXPECT_EQ(document["nodes"][1]["waits_for"]["link"], 2);
  // If all links are equally full, none is slow.
  for (unsigned node = 0; node < kNodes; ++node) {
    if (node != 1) fill_link(ring[node], (node + 1) % kNodes, 0.7);
  }
  EXPECT_FALSE(summary_of(ring).held_up);
}

TEST(TraceSummaryTest, OneNodeOfARingKnowsLittle) {
  auto ring = ring_recording(kNodes, kOperations);
  fill_link(ring[1], 2, 0.7);
  const std::string alone = summary_of(std::vector{ring[1]}).verdict;
  EXPECT_THAT(alone, testing::StartsWith("a full link: node 1 -> node 2: "));
  EXPECT_THAT(alone, testing::EndsWith("; of 4 nodes 1 is here: run gradlane trace on the others, too"));
  EXPECT_EQ(summary_of(std::vector{ring[0], ring[3]}).verdict,
            "no node stands out; of 4 nodes 2 are here: run gradlane trace on the others, too");
}

TEST(TraceSummaryTest, ALinkIsFullInAShareOfItsSendersTime) {
  auto ring = ring_recording(kNodes, kOperations);
  fill_link(ring[1], 2, 0.7);
  // A second rank of the node sends to a rank of the same node. The operations of both ranks take the same time.
  ring[1].lanes.push_back(ring[1].lanes[0]);
  ring[1].lanes[1].rank = 7;
  ring[1].lanes[1].links.clear();
  const TraceSummary summary = summary_of(ring);
  ASSERT_FALSE(summary.links.empty());
  EXPECT_EQ(summary.links[0].from, 1U);
  EXPECT_NEAR(summary.links[0].full, 0.7 * 0.995, 1e-3);
}

TEST(TraceSummaryTest, WhatGoesToAllIsOnEachLink) {
  auto ring = ring_recording(kNodes, 1);
  LaneRecording& lane = ring[0].lanes[0];
  lane.links = {{.rank = 1}, {.rank = 3}};
  lane.hops.push_back({.what = TraceHop::kToAll, .bytes = 500});
  for (const LinkSummary& link : summary_of(ring).links) {
    if (link.from != 0) continue;
    EXPECT_EQ(link.bytes, link.to == 1 ? 12'500U : 500U);
  }
}

TEST(TraceSummaryTest, ALateTrainer) {
  auto ring = ring_recording(kNodes, kOperations);
  for (TraceOperation& it : ring[2].lanes[0].operations) {
    it.asked += 6 * kMillisecond;
    it.submitted += 6 * kMillisecond;
  }
  const TraceSummary summary = summary_of(ring);
  EXPECT_TRUE(summary.held_up);
  EXPECT_THAT(summary.verdict, HasSubstr("the trainer of node 2 is late: it submits operations 6.00 ms after"));
  EXPECT_NEAR(summary.nodes[2].late, 6e6, 1);
  EXPECT_NEAR(summary.nodes[1].late, 0, 1);
}

TEST(TraceSummaryTest, ALateTrainerOfSeveral) {
  constexpr unsigned kLate = 5;
  auto ring = ring_recording(2 * kNodes, kOperations);
  std::vector<NodeRecording> nodes(kNodes);
  for (unsigned rank = 0; rank < 2 * kNodes; ++rank) {
    NodeRecording& node = nodes[rank / 2];
    node.node = rank / 2;
    node.nodes = kNodes;
    node.ranks_per_node = 2;
    node.lanes.push_back(ring[rank].lanes[0]);
    if (rank != kLate) continue;
    for (TraceOperation& it : node.lanes.back().operations) it.asked += 6 * kMillisecond;
  }
  const TraceSummary summary = summary_of(nodes);
  EXPECT_THAT(summary.verdict, testing::StartsWith("the trainer of rank 5 is late: it submits operations 6.00 ms"));
  EXPECT_EQ(summary.nodes[2].latest_rank, kLate);
}

TEST(TraceSummaryTest, ALateTrainerWithLocalReduce) {
  auto ring = ring_recording(kNodes, kOperations);
  for (TraceOperation& it : ring[2].lanes[0].operations) {
    it.gathered = it.asked + 6 * kMillisecond;
    it.submitted = it.gathered;
    it.flags |= uint64_t{9 + 1} << 8;
  }
  const TraceSummary summary = summary_of(ring);
  EXPECT_TRUE(summary.held_up);
  EXPECT_EQ(
      summary.verdict,
      "the trainer of rank 9 is late: the other trainers of node 2 wait 6.00 ms for it per operation, of 10.0 ms");
  EXPECT_EQ(summary_json(summary)["nodes"][2]["awaited_rank"], 9);
  EXPECT_EQ(summary_json(summary)["nodes"][2]["awaited_us"], 6000);
  // If two trainers take turns at being last, none is late.
  uint64_t turn = 0;
  for (TraceOperation& it : ring[2].lanes[0].operations) it.flags = (8 + turn++ % 2 + 1) << 8;
  EXPECT_FALSE(summary_of(ring).held_up);
}

TEST(TraceSummaryTest, FaultsComeFirst) {
  auto ring = ring_recording(kNodes, kOperations);
  fill_link(ring[1], 2, 0.7);
  ring[3].lanes[0].operations[4].what |= uint64_t{7} << 32;
  EXPECT_THAT(summary_of(ring).verdict, HasSubstr("operations failed: 1 on node 3"));
  ring[0].missing = "nobody listens";
  EXPECT_THAT(summary_of(ring).verdict, HasSubstr("node 0 does not answer any more: nobody listens"));
}

TEST(TraceSummaryTest, BusyWorkersAndNoOperations) {
  auto ring = ring_recording(kNodes, kOperations);
  for (TraceOperation& it : ring[3].lanes[0].operations) it.add = 8 * kMillisecond;
  EXPECT_THAT(summary_of(ring).verdict, HasSubstr("the worker of node 3 is busy with codecs for 77 %"));
  EXPECT_THAT(summary_of(ring_recording(kNodes, 0)).verdict, HasSubstr("no operations"));
}

TEST(TraceSummaryTest, OperationsThatWereLeftOutCountAsOthers) {
  auto ring = ring_recording(kNodes, kOperations);
  for (NodeRecording& node : ring) {
    std::erase_if(node.lanes[0].operations, [](const TraceOperation& it) { return it.number % 2 != 0; });
    node.lanes[0].skipped = kOperations / 2;
  }
  const TraceSummary summary = summary_of(ring);
  EXPECT_NEAR(summary.nodes[0].idle, 0.95 / 10.95, 0.05);
  EXPECT_THAT(joined(summary), HasSubstr("40 more operations were left out"));
}

}  // namespace
}  // namespace gradlane::test::trace_summary_test
