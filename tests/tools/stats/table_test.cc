// table_test.cc - the page of `gradlane stats` for a node with few neighbours, and with many
#include "tools/stats/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/stats/stats.h"

namespace gradlane::test::table_test {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// Returns the document of node 0, whose link to node i has an RTT of i us.
json document(unsigned nodes) {
  json links = json::array();
  json neighbours = json::array();
  for (unsigned i = 1; i < nodes; ++i) {
    neighbours.push_back({{"node", i},
                          {"ip", "10.77.0." + std::to_string(i + 1)},
                          {"port", "e0"},
                          {"mac", "02:00:00:00:00:01"},
                          {"state", "up"},
                          {"why", ""},
                          {"trouble", ""}});
    links.push_back({{"rank", i}, {"up", true}, {"rtt_us", i}, {"window", 16}, {"in_flight", 0}});
  }
  const json rank = {{"rank", 0},     {"lane", 0},    {"ring", "whole"}, {"missing", nullptr},
                     {"refused", ""}, {"failed", ""}, {"links", links},  {"counters", json::object()}};
  return {{"node", 0},      {"nodes", nodes},         {"codec", "raw"},         {"mtu", 1500},
          {"lanes", 1},     {"strategies", {"ring"}}, {"trainers", 1},          {"attached", 1},
          {"in_flight", 0}, {"ports", json::array()}, {"pools", json::array()}, {"neighbours", neighbours},
          {"ranks", {rank}}};
}

void lose(json& now, unsigned node) {
  json& it = now["neighbours"][node - 1];
  it["state"] = "missing";
  it["why"] = "its daemon is not running";
  now["ranks"][0]["links"][node - 1]["up"] = false;
}

TEST(StatsTable, SaysWhatFailedAndEndsWithAStatusForAMinute) {
  json now = document(2);
  EXPECT_EQ(stats_status(now), kStatsFine);
  now["ranks"][0]["failed"] = "rank 1 has left";
  now["failed_s_ago"] = 59;
  EXPECT_EQ(stats_status(now), kStatsFailing);
  EXPECT_THAT(stats_lines(now, nullptr, 0, false),
              Contains(HasSubstr("the last operation of rank 0 that failed: rank 1 has left")));
  now["failed_s_ago"] = 61;
  EXPECT_EQ(stats_status(now), kStatsFine);
  now["failed_s_ago"] = 1;
  now["ranks"][0]["ring"] = "incomplete";
  EXPECT_EQ(stats_status(now), kStatsRing);
}

TEST(StatsTable, SaysWhatCodecsTookAway) {
  json now = document(2);
  EXPECT_THAT(stats_lines(now, nullptr, 0, false), Not(Contains(HasSubstr("rounding"))));
  const json before = {
      {"lossy_operations", 3}, {"lossy_values", 2000}, {"lossy_zeroed", 1800}, {"lossy_norm_ppm", 150'000}};
  now["ranks"][0]["counters"] = {
      {"lossy_operations", 4}, {"lossy_values", 3000}, {"lossy_zeroed", 2050}, {"lossy_norm_ppm", 180'000}};
  EXPECT_THAT(stats_lines(now, nullptr, 0, false),
              Contains("rank 0, lane 0: rounding made 68.3 % of the values zero and took 4.5 % of the norm (4 sums)"));
  json earlier = document(2);
  earlier["ranks"][0]["counters"] = before;
  EXPECT_THAT(stats_lines(now, &earlier, 10, false),
              Contains("rank 0, lane 0: rounding made 25.0 % of the values zero and took 3.0 % of the norm (1 sum)"));
}

std::vector<std::string> page(const json& now, bool all = false) { return stats_lines(now, nullptr, 0, all); }

TEST(StatsTable, FewNeighboursHaveALineEachAndLinksAFigure) {
  json now = document(4);
  lose(now, 2);
  const std::vector<std::string> lines = page(now);
  for (const char* const node : {"node 1", "node 2", "node 3"}) {
    EXPECT_THAT(lines, Contains(testing::StartsWith(node))) << node;
  }
  EXPECT_THAT(lines, Contains(HasSubstr("1:1.00 2:- 3:3.00")));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("strategies"))));
}

TEST(StatsTable, OfManyNeighboursThoseThatAreMissingHaveALineAndLinksARange) {
  json now = document(256);
  now["strategies"] = {"ring", "aggregator:0,stream"};
  lose(now, 1);
  lose(now, 255);
  std::vector<std::string> lines = page(now);
  EXPECT_THAT(lines, Contains(testing::StartsWith("node 1 ")));
  EXPECT_THAT(lines, Contains(testing::StartsWith("node 255 ")));
  EXPECT_THAT(lines, Contains("  its daemon is not running").Times(2));
  EXPECT_THAT(lines, Not(Contains(testing::StartsWith("node 2 "))));
  EXPECT_THAT(lines, Contains("253 more (--all); 253 of 255 neighbours are up"));
  EXPECT_THAT(lines, Contains(HasSubstr("2.00..254")));
  EXPECT_THAT(lines, Contains(HasSubstr("codec raw   strategies ring, aggregator:0,stream   MTU 1500")));
  EXPECT_LT(lines.size(), 20U);
  EXPECT_THAT(page(now, true), Contains(testing::StartsWith("node 2 ")));
  for (unsigned node = 1; node < 256; ++node) lose(now, node);
  lines = page(now);
  EXPECT_THAT(lines, Contains("247 more (--all); 0 of 255 neighbours are up"));
  EXPECT_LT(lines.size(), 30U);
}

}  // namespace
}  // namespace gradlane::test::table_test
