// events_test.cc - trace events: the rules of their format, and the events that a ring's trace must have
#include "tools/trace/events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/wire.h"
#include "tests/tools/trace/recordings.h"

namespace gradlane::test::trace_events_test {
namespace {

using nlohmann::json;

json document_of(const std::vector<NodeRecording>& ring, const std::vector<TrainerSpan>& spans = {}) {
  return json::parse(trace_events(ring, spans, "1.2"));
}

// Checks that two spans of a thread are nested or disjoint.
void expect_nested(const json& document) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"].get<double>(), 0);
    const double begin = event["ts"];
    threads[{event["pid"], event["tid"]}].emplace_back(begin, -(begin + event["dur"].get<double>()));
  }
  EXPECT_FALSE(threads.empty());
  for (auto& [thread, spans] : threads) {
    std::ranges::sort(spans);
    std::vector<double> open;
    for (const auto& [begin, end] : spans) {
      while (!open.empty() && open.back() <= begin + 1e-4) open.pop_back();
      EXPECT_LE(-end, (open.empty() ? -end : open.back()) + 1e-4);
      open.push_back(-end);
    }
  }
}

TEST(TraceEventsTest, AreNestedAndJoined) {
  auto ring = ring_recording(3, 5);
  // Several operations overlap.
  for (NodeRecording& node : ring) {
    for (TraceOperation& it : node.lanes[0].operations) it.ended += 5 * kMillisecond;
  }
  const json document = document_of(ring);
  expect_nested(document);
  EXPECT_EQ(document["otherData"]["clock_error_us"], 2);
  std::map<uint64_t, std::pair<const json*, const json*>> flows;
  unsigned operations = 0;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] == "s") flows[event["id"]].first = &event;
    if (event["ph"] == "f") flows[event["id"]].second = &event;
    operations += event.value("cat", "") == "operation" ? 1 : 0;
    if (event.value("cat", "") == "packet") {
      EXPECT_NEAR(event["dur"], 100.001, 1e-6);
    }
  }
  EXPECT_EQ(operations, 15U);
  EXPECT_EQ(flows.size(), 15U);
  for (const auto& [id, flow] : flows) {
    ASSERT_NE(flow.first, nullptr);
    ASSERT_NE(flow.second, nullptr);
    EXPECT_NEAR((*flow.second)["ts"].get<double>() - (*flow.first)["ts"].get<double>(), 100, 1e-6);
    EXPECT_EQ((*flow.second)["pid"], ((*flow.first)["pid"].get<int>() + 1) % 3);
  }
}

TEST(TraceEventsTest, WhatBeganBeforeTheTraceHasNoFlows) {
  auto ring = ring_recording(2, 1);
  ring[0].lanes[0].operations[0].flags = TraceOperation::kCut;
  unsigned flows = 0;
  const json document = document_of(ring);
  for (const json& event : document["traceEvents"]) {
    flows += event["ph"] == "s" || event["ph"] == "f" ? 1 : 0;
    if (event["ph"] == "s" || event["ph"] == "f") {
      EXPECT_EQ(event["pid"], 1);
    }
  }
  EXPECT_EQ(flows, 2U);
}

TEST(TraceEventsTest, ManyNeighboursHaveThreadsOfTheirOwn) {
  constexpr unsigned kNodes = kMaxWorld;
  auto ring = ring_recording(kNodes, 1);
  LaneRecording& lane = ring[0].lanes[0];
  const TraceHop hop = lane.hops[0];
  const TracePacket packet = lane.packets[0];
  for (uint64_t rank = 2; rank < kNodes; ++rank) {
    for (const uint64_t way : {uint64_t{0}, uint64_t{TraceHop::kIn}}) {
      lane.hops.push_back(hop);
      lane.hops.back().what = way | rank << 32;
    }
    lane.packets.push_back(packet);
    lane.packets.back().what = rank << 8;
  }
  ring[0].lanes.push_back(lane);
  ring[0].lanes.back().lane = 1;
  for (unsigned rank = 1; rank < kNodes; ++rank) {
    LaneRecording& other = ring[rank].lanes.emplace_back();
    other.rank = rank;
    other.lane = 1;
  }
  std::map<std::pair<int, int>, std::string> names;
  const json document = document_of(ring);
  for (const json& event : document["traceEvents"]) {
    if (event["name"] != "thread_name") continue;
    const auto [place, added] = names.try_emplace({event["pid"], event["tid"]}, event["args"]["name"]);
    EXPECT_TRUE(added) << place->second << " and " << event["args"]["name"];
  }
  // Each of the two lanes has a thread for operations, and three per other rank: to it, from it, and packets to it.
  EXPECT_EQ(std::ranges::count_if(names, [](const auto& it) { return it.first.first == 0; }), 2 * (1 + 3 * 255));
  expect_nested(document);
}

TEST(TraceEventsTest, OfNothing) {
  const json document = document_of(ring_recording(2, 0));
  for (const json& event : document["traceEvents"]) EXPECT_EQ(event["ph"], "M");
}

TEST(TraceEventsTest, WaitsWithoutTheirOperationAreLeftOut) {
  auto ring = ring_recording(2, 3);
  std::erase_if(ring[0].lanes[0].operations, [](const TraceOperation& it) { return it.number == 1; });
  expect_nested(document_of(ring));
}

TEST(TraceEventsTest, TrainersHaveRowsOfTheirOwn) {
  const std::vector<TrainerSpan> all = {{1, "step", "step 0", 500, 700},
                                        {1, "bucket", "bucket 1", 1200, 1500},
                                        {1, "bucket", "bucket \"0\"", 1100, 1300},
                                        {1, "step", "step 1", 900, 2000},
                                        {1, "step", "step 2", 5000, 6000}};
  const auto spans = cut_spans(all, 1000, 4000);
  ASSERT_EQ(spans.size(), 3U);  // spans that end before the trace or begin after it are left out
  EXPECT_EQ(spans[0].name, "step 1");
  EXPECT_EQ(spans[0].begin, 0U);
  EXPECT_EQ(spans[0].end, 1000U);
  const json document = document_of(ring_recording(2, 1), spans);
  expect_nested(document);
  std::vector<std::string> names;
  for (const json& event : document["traceEvents"]) {
    if (event.value("cat", "") == "trainer") names.push_back(event["name"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"step 1", "bucket \"0\"", "bucket 1"}));
}

TEST(RecordingTest, ReadsWordsAndRefusesOthers) {
  NodeRecording node;
  const TraceWait wait{
      .head = 3 | sizeof(TraceWait) / 8 << 8, .session = 1, .number = 2, .what = 3, .since = 4, .until = 5};
  std::vector<uint64_t> words = {wait.head, 1, 2, 3, 4, 5, 9 | 2 << 8, 0};  // the last two words are of an unknown kind
  json answer = {{"format", 1}, {"node", 1}, {"nodes", 2}, {"lanes", {{{"rank", 1}, {"lane", 0}, {"words", words}}}}};
  add_answer(node, answer, 1, 2);
  add_answer(node, answer, 3, 4);
  ASSERT_EQ(node.lanes.size(), 1U);
  ASSERT_EQ(node.lanes[0].waits.size(), 2U);
  EXPECT_EQ(node.lanes[0].waits[1].until, 5U);
  answer["lanes"][0]["words"] = {3 | 9 << 8, 1};
  EXPECT_THROW(add_answer(node, answer, 1, 2), SetupError);
  answer["lanes"][0]["words"] = {0};
  EXPECT_THROW(add_answer(node, answer, 1, 2), SetupError);
  answer["format"] = 2;
  EXPECT_THROW(add_answer(node, answer, 1, 2), SetupError);
}

}  // namespace
}  // namespace gradlane::test::trace_events_test
