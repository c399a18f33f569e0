// view_test.cc - the view that `gradlane top` makes of documents, and its page on screens of all sizes
#include "tools/top/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/top/figures.h"
#include "tools/top/table.h"

namespace gradlane::test::top_view_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr double kSeconds = 2;

// Returns the document of node `node` of a ring after `time` intervals. In each interval its link to the next node is
// full for `full_us`, and `loss` of 1000 packets are retransmitted.
json document(unsigned node, unsigned nodes, double full_us, unsigned loss, unsigned time) {
  const json next = {{"rank", (node + 1) % nodes},
                     {"up", true},
                     {"rtt_us", 100},
                     {"window", 16},
                     {"in_flight", 3},
                     {"sent", 1000 * time},
                     {"resent", loss * time},
                     {"bytes", 1e6 * time},
                     {"full_us", full_us * time},
                     {"full_bytes", 6e5 * time}};
  const json counters = {{"run_bytes", 1e6 * time}, {"element_bytes", 4e6 * time}, {"operations_done", 20 * time}};
  const json rank = {{"rank", node}, {"lane", 0}, {"ring", "whole"}, {"links", {next}}, {"counters", counters}};
  return {{"node", node}, {"nodes", nodes}, {"codec", "raw"}, {"mtu", 1500},
          {"pid", 7},     {"attached", 1},  {"in_flight", 1}, {"ranks", {rank}}};
}

TopLooks looks(unsigned node, unsigned nodes, double full_us, unsigned loss = 0) {
  TopLooks looks;
  looks.now = document(node, nodes, full_us, loss, 2);
  looks.before = document(node, nodes, full_us, loss, 1);
  looks.seconds = kSeconds;
  looks.exchanging = 1;
  return looks;
}

// Returns a ring. For each node, `full_us` is how long its link to the next node was full in 2 s.
std::vector<TopLooks> ring(const std::vector<double>& full_us) {
  std::vector<TopLooks> result;
  for (unsigned i = 0; i < full_us.size(); ++i) {
    result.push_back(looks(i, static_cast<unsigned>(full_us.size()), full_us[i]));
  }
  return result;
}

std::map<unsigned, TopLink::Mark> marks(const TopView& view) {
  std::map<unsigned, TopLink::Mark> result;
  for (const TopLink& link : view.links) {
    if (link.mark != TopLink::Mark::kNone) result[link.from] = link.mark;
  }
  return result;
}

TEST(TopView, RatesAreOfTheTimeBetweenTheLooks) {
  const TopView view = top_view(ring({1e6, 0, 0, 0}));
  ASSERT_EQ(view.nodes.size(), 4U);
  EXPECT_DOUBLE_EQ(view.nodes[0].done, 10);
  EXPECT_DOUBLE_EQ(view.nodes[0].ratio, 4);
  EXPECT_DOUBLE_EQ(view.nodes[0].saved, 1.5) << "half of the time the window was full, and all would take 4 times it";
  EXPECT_DOUBLE_EQ(view.nodes[1].saved, 0);
  EXPECT_DOUBLE_EQ(view.links[0].full, 0.5);
  EXPECT_DOUBLE_EQ(view.links[0].rate, 5e5);
  EXPECT_DOUBLE_EQ(view.links[0].full_rate, 6e5);
}

TEST(TopView, TheSlowestLinkIsTheOneThatIsFullLongerThanTheOthers) {
  using Mark = TopLink::Mark;
  EXPECT_EQ(marks(top_view(ring({1e4, 1.8e6, 2e4, 1e4}))), (std::map<unsigned, Mark>{{1, Mark::kSlowest}}));
  const TopView both = top_view(ring({1e4, 1.8e6, 1.5e6, 1e4}));
  EXPECT_EQ(marks(both), (std::map<unsigned, Mark>{{1, Mark::kSlowest}, {2, Mark::kSlow}}));
  EXPECT_THAT(both.verdict, HasSubstr("node 1 -> node 2: full 90 %"));
  ASSERT_EQ(both.notes.size(), 1U);
  EXPECT_THAT(both.notes[0], HasSubstr("belong to node 2"));
  EXPECT_TRUE(marks(top_view(ring({1.8e6, 1.9e6, 1.7e6, 1.8e6}))).empty()) << "all alike";
  EXPECT_TRUE(marks(top_view(ring({100, 5e4, 100, 100}))).empty()) << "full for too short a time to hold up anybody";
}

// The daemon counts the wait for each trainer if local_reduce is on. If it is off, each trainer is a rank.
TEST(TopView, ALateTrainerOfSeveralIsNamed) {
  std::vector<TopLooks> local = ring({0, 0, 0});
  local[1].before["awaited"] = {{{"rank", 2}, {"awaited_us", 5e5}}, {{"rank", 3}, {"awaited_us", 1e6}}};
  local[1].now["awaited"] = {{{"rank", 2}, {"awaited_us", 6e5}}, {{"rank", 3}, {"awaited_us", 2.5e6}}};
  std::vector<TopLooks> ranks = ring({0, 0, 0});
  for (TopLooks& it : ranks) {
    for (json* const each : {&it.now, &it.before}) {
      json& all = each->at("ranks");
      all[0]["rank"] = 2 * at(*each, "node").get<unsigned>();
      all[0]["counters"]["exchange_ns"] = each == &it.now ? 1.9e9 : 0;
      all.push_back(all[0]);
      all[1]["rank"] = all[0]["rank"].get<unsigned>() + 1;
    }
  }
  ranks[1].now["ranks"][1]["counters"]["exchange_ns"] = 5e8;
  for (const std::vector<TopLooks>& each : {local, ranks}) {
    const TopView view = top_view(each);
    EXPECT_EQ(view.verdict, "the trainer of rank 3, on node 1, is late: the others wait for it");
    EXPECT_EQ(view.nodes[1].waits, "its own trainer of rank 3");
    EXPECT_EQ(view.nodes[2].waits, "the trainer of rank 3");
    EXPECT_EQ(top_json(view)["nodes"][1]["late_rank"], 3);
    EXPECT_TRUE(top_json(view)["nodes"][0]["late_rank"].is_null());
  }
  // A late node has precedence over a late trainer of one node.
  local[2].exchanging = 0.1;
  EXPECT_EQ(top_view(local).verdict, "the trainer of node 2 is late: the others wait for it");
}

TEST(TopView, ANodeIsAsItsWorstLane) {
  const std::vector<std::string> order = {"refused", "incomplete", "unknown", "whole"};
  for (size_t worse = 0; worse < order.size(); ++worse) {
    for (size_t better = worse; better < order.size(); ++better) {
      TopLooks it = looks(0, 2, 0);
      json& ranks = it.now.at("ranks");
      ranks.push_back(ranks[0]);
      ranks[0]["ring"] = order[better];
      ranks[1]["ring"] = order[worse];
      ranks[1]["lane"] = 1;
      EXPECT_EQ(figures_of(it).state, order[worse]) << order[better];
    }
  }
}

TEST(TopView, LossIsNamedAsTheCause) {
  std::vector<TopLooks> nodes = ring({0, 0, 0});
  nodes[1] = looks(1, 3, 1.5e6, 30);
  EXPECT_THAT(top_view(nodes).verdict, HasSubstr("2.9 % of its packets are sent again"));
}

TEST(TopView, WhoWaitsForWhom) {
  const TopView slow = top_view(ring({1e4, 1.8e6, 1e4, 1e4}));
  EXPECT_EQ(slow.nodes[1].waits, "the link to node 2");
  EXPECT_EQ(slow.nodes[2].waits, "packets of node 1");
  EXPECT_EQ(slow.nodes[0].waits, "packets of node 3");

  std::vector<TopLooks> late = ring({0, 0, 0});
  for (TopLooks& each : late) each.before = each.now;  // counters do not change
  late[1].exchanging = 0;
  const TopView view = top_view(late);
  EXPECT_EQ(view.nodes[1].waits, "its own trainer");
  EXPECT_EQ(view.nodes[2].waits, "the trainer of node 1");
  EXPECT_THAT(view.verdict, HasSubstr("trainer of node 1 is late"));
}

// Returns nodes that had operations in flight for these shares of the time, according to their counters.
std::vector<TopLooks> training(const std::vector<double>& shares) {
  std::vector<TopLooks> nodes = ring(std::vector<double>(shares.size(), 0));
  for (size_t i = 0; i < shares.size(); ++i) {
    nodes[i].exchanging = 0;  // no document has caught an operation in flight
    nodes[i].before["ranks"][0]["counters"]["exchange_ns"] = 1e9;
    nodes[i].now["ranks"][0]["counters"]["exchange_ns"] = 1e9 + 1e9 * kSeconds * shares[i];
  }
  return nodes;
}

TEST(TopView, NobodyIsLateWhereAllComputeForMostOfTheTime) {
  const TopView view = top_view(training({0.1, 0.1, 0.02, 0.1}));
  EXPECT_EQ(view.verdict, "the ring is ready, and no link slows it down");
  EXPECT_FALSE(view.held_up);
  EXPECT_DOUBLE_EQ(view.nodes[2].exchanging, 0.02);
}

TEST(TopView, WhoComputesLongerThanTheOthersIsLate) {
  const TopView view = top_view(training({0.7, 0.7, 0.2, 0.7}));
  EXPECT_THAT(view.verdict, HasSubstr("trainer of node 2 is late"));
  EXPECT_EQ(view.nodes[2].waits, "its own trainer");
  EXPECT_EQ(view.nodes[0].waits, "the trainer of node 2");
}

TEST(TopView, OneNodeOfARingSaysWhatItKnows) {
  std::vector<TopLooks> one = {looks(1, 4, 1.9e6)};
  one[0].now["neighbours"] = {{{"node", 2}, {"ip", "10.77.0.3"}, {"state", "up"}},
                              {{"node", 0}, {"ip", "10.77.0.1"}, {"state", "up"}}};
  const TopView full = top_view(one);
  EXPECT_THAT(full.verdict, HasSubstr("the link of node 1 to node 2 is full 95 % of the time"));
  EXPECT_THAT(full.verdict, HasSubstr("of 4 nodes one answers: run gradlane top on the others, too"));
  one[0] = looks(1, 4, 1e4);
  one[0].now["neighbours"] = {{{"node", 2}, {"ip", "10.77.0.3"}, {"state", "up"}}};
  EXPECT_EQ(top_view(one).verdict,
            "the ring is ready, and no link slows it down; of 4 nodes one answers: run gradlane top on the "
            "others, too");
}

TEST(TopView, ALinkThatHangsIsTheSlowest) {
  std::vector<TopLooks> nodes = ring({0, 2e6, 0, 0});
  for (TopLooks& each : nodes) each.before["ranks"][0]["links"][0]["bytes"] = each.now["ranks"][0]["links"][0]["bytes"];
  const TopView view = top_view(nodes);
  EXPECT_THAT(view.verdict, HasSubstr("node 1 to node 2 is full 100 % of the time"));
}

TEST(TopView, WhoHasGoneIsNamedBeforeWhoMissesIt) {
  std::vector<TopLooks> nodes = ring({0, 0, 0});
  nodes[0].now["ranks"][0]["ring"] = "incomplete";
  nodes[0].now["neighbours"] = {{{"node", 2}, {"ip", "10.77.0.3"}, {"state", "missing"}, {"why", "no hello"}}};
  nodes[2].gone = "nobody listens";
  const TopView view = top_view(nodes);
  EXPECT_TRUE(view.bad);
  EXPECT_THAT(view.verdict, HasSubstr("node 2 is gone: nobody listens"));
  EXPECT_EQ(view.nodes[0].waits, "node 2: no hello");
  EXPECT_EQ(view.nodes[2].address, "10.77.0.3");
}

TEST(TopView, NodesElsewhereThatDoNotAnswerAreThereAndSaidWhy) {
  std::vector<TopLooks> known = {looks(0, 5, 1e4), looks(1, 5, 1e4)};
  known[0].now["neighbours"] = {{{"node", 4}, {"ip", "10.77.0.5"}, {"state", "missing"}}};
  const std::vector<TopOther> others = {{2, "10.77.0.3", "10.77.0.3:9400", "Connection refused"},
                                        {3, "10.77.0.4", "", "set `metrics`"},
                                        {4, "10.77.0.5", "", "set `metrics`"}};
  const TopView view = top_view(known, others);
  ASSERT_EQ(view.nodes.size(), 5U);
  EXPECT_EQ(view.nodes[2].state, "not asked");
  EXPECT_EQ(view.nodes[2].address, "10.77.0.3");
  EXPECT_EQ(view.nodes[2].waits, "Connection refused");
  EXPECT_EQ(view.nodes[4].state, "missing") << "as its neighbour says";
  EXPECT_EQ(view.nodes[4].waits, "set `metrics`");
  EXPECT_THAT(view.notes, testing::ElementsAre("node 2: no figures at 10.77.0.3:9400: Connection refused",
                                               "nodes 3, 4: no figures: set `metrics`"));
  EXPECT_THAT(page_of(view, {}, 0, 0)[0].text, HasSubstr("2 of 5 nodes answer"));
}

TEST(TopView, CausesTakeAFewLines) {
  const std::vector<TopLooks> known = {looks(0, 200, 1e4)};
  std::vector<TopOther> others;
  for (unsigned i = 1; i < 200; ++i) {
    const std::string why = i < 100 ? "refused" : "cause " + std::to_string(i);
    others.push_back({.node = i, .address = "", .place = "", .why = why});
  }
  const TopView view = top_view(known, others);
  EXPECT_EQ(view.nodes.size(), 200U);
  ASSERT_EQ(view.notes.size(), 4U);
  EXPECT_EQ(view.notes[0], "nodes 1, 2, 3, 4, 5, 6, 7, 8 and 91 more: no figures: refused");
  EXPECT_THAT(view.notes[3], HasSubstr("for other reasons"));
}

TEST(TopView, WhatMakesNoSenseTakesNoTimeAndNoRoom) {
  std::vector<TopLooks> nodes = ring({0, 0, 0});
  json& now = nodes[1].now;
  json& rank = now["ranks"][0];
  rank["ring"] = "incomplete";
  for (const json& to : {json(1e300), json(-1), json(4'000'000'000), json("x"), json::array()}) {
    json link = rank["links"][0];
    link["rank"] = to;
    rank["links"].push_back(link);
    now["neighbours"].push_back({{"node", to}, {"state", "missing"}, {"why", std::string(4000, 'y')}, {"ip", to}});
  }
  now["uptime_s"] = -1e300;
  now["attached"] = 1e300;
  rank["counters"]["operations_done"] = 1e300;
  const TopView view = top_view(nodes);
  EXPECT_EQ(view.nodes.size(), 3U);
  EXPECT_LT(view.links.size(), 6U);
  EXPECT_LT(view.verdict.size(), 400U);
  EXPECT_LT(page_of(view, {}, 80, 0).size(), 40U);
}

TEST(TopView, DocumentsMayLackAnything) {
  TopLooks empty;
  empty.now = json::object();
  empty.before = json::object();
  empty.seconds = 1;
  const TopView view = top_view(std::vector<TopLooks>{empty});
  EXPECT_EQ(view.nodes.size(), 1U);
  EXPECT_FALSE(page_of(view, {}, 80, 24).empty());
  EXPECT_TRUE(page_of(top_view({}), {}, 1, 1).size() <= 1);
}

TEST(TopPage, FitsEveryScreen) {
  std::vector<TopLooks> nodes = ring(std::vector<double>(40, 1e4));
  nodes[30].gone = "nobody listens on\x1b[2J";
  const TopView view = top_view(nodes);
  const std::vector<std::string> events(9, "12:00:00 node 30 has gone");
  for (const size_t width : {1U, 30U, 80U, 200U}) {
    for (const size_t height : {1U, 8U, 24U, 60U}) {
      const std::vector<PageLine> page = page_of(view, events, width, height);
      EXPECT_LE(page.size(), height);
      for (const PageLine& line : page) {
        EXPECT_LE(line.text.size(), width);
        EXPECT_EQ(line.text.find('\x1b'), std::string::npos);
      }
    }
  }
  const std::vector<PageLine> page = page_of(view, events, 80, 24);
  EXPECT_TRUE(std::ranges::any_of(page, [](const PageLine& it) { return it.text.starts_with("30     gone"); }))
      << "what is wrong is not left out";
}

}  // namespace
}  // namespace gradlane::test::top_view_test
