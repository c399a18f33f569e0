// plan_table_test.cc - the choices for operations, as a table and as a plan to keep
#include "tools/stats/plan_table.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "config/choices.h"

namespace gradlane::test::plan_table_test {
namespace {

using nlohmann::json;

json row(uint64_t from, const std::string& codec, double bytes = 1e6) {
  return {{"rank", 0},        {"operation", "all_reduce"}, {"type", "float32"}, {"from", from},
          {"to", 2 * from},   {"asked", "auto:2^-10"},     {"codec", codec},    {"strategy", "ring"},
          {"settled", true},  {"frozen", false},           {"why", ""},         {"operations", 24},
          {"bytes", bytes},   {"sent_bytes", bytes / 4},   {"predicted", 3.0},  {"measured", 2.5},
          {"baseline", 10.0}, {"saved_ms", 123.4},         {"rival", ""},       {"rival_measured", 0.0}};
}

TEST(PlanTable, Lines) {
  json why = row(65536, "raw");
  why["why"] = "exact: fixed:10 takes longer";
  const Lines lines = plan_lines({{"plan", {row(262144, "fixed:10"), why}}});
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[2], "  exact: fixed:10 takes longer");
  EXPECT_NE(lines[3].find("256KiB-512KiB"), std::string::npos) << lines[3];
  EXPECT_NE(lines[3].find("fixed:10 by ring"), std::string::npos) << lines[3];
  EXPECT_TRUE(lines[3].ends_with("24  1.00     0.25")) << lines[3];
  EXPECT_TRUE(lines[4].starts_with("ns/B: ")) << lines[4];
  EXPECT_EQ(plan_lines(json::object()).size(), 1U);
}

TEST(PlanTable, ByOperationThenSize) {
  json reduce = row(4096, "raw");
  reduce["operation"] = "reduce";
  const Lines lines = plan_lines({{"plan", {reduce, row(65536, "raw"), row(8192, "raw")}}});
  EXPECT_NE(lines[1].find("8KiB-16KiB"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("64KiB-128KiB"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find(" reduce "), std::string::npos) << lines[3];
}

TEST(PlanTable, SaysWhatIsNotKnown) {
  json it = row(8192, "raw");
  EXPECT_EQ(plan_lines({{"plan", {it}}}).back().find("-: not measured"), std::string::npos);
  it["measured"] = 0.0;
  EXPECT_EQ(plan_lines({{"plan", {it}}}).back().find("-: not measured"), 0U);
}

TEST(PlanTable, RingsThatAreNotWhole) {
  const json whole = {{"ranks", {{{"ring", "whole"}}, {{"ring", "whole"}}}}};
  const json broken = {{"ranks", {{{"ring", "whole"}}, {{"ring", "forming"}}}}};
  EXPECT_TRUE(all_rings_whole(whole));
  EXPECT_TRUE(all_rings_whole(json::object()));
  EXPECT_FALSE(all_rings_whole(broken));
  EXPECT_EQ(plan_lines(whole).size(), 1U);
  EXPECT_EQ(plan_lines(broken).size(), 2U);
}

TEST(PlanTable, WhatIsMissingShowsAsThat) { EXPECT_FALSE(plan_lines({{"plan", {json::object(), 7, "text"}}}).empty()); }

TEST(PlanTable, Frozen) {
  json trying = row(1 << 20, "raw");
  trying["settled"] = false;
  json other = row(8192, "fixed:7", 10);
  const std::string text =
      frozen_plan({{"plan", {row(32768, "fixed:10"), row(16384, "fixed:10"), row(8192, "raw"), other, trying}}});
  EXPECT_EQ(text,
            "plan: 1\nchoices:\n"
            "  # 0 to 8KiB has no row: raw, by the first strategy\n"
            "  - {from: 8KiB, to: 16KiB, strategy: 'ring', codec: 'raw'}\n"
            "  - {from: 16KiB, to: 64KiB, strategy: 'ring', codec: 'fixed:10'}\n"
            "  # 64KiB and more has no row: raw, by the first strategy\n");
  EXPECT_EQ(parse_plan(text, "again", {StrategyId{}}).size(), 2U);
  EXPECT_THROW((void)frozen_plan({{"plan", json::array()}}), SetupError);
}

}  // namespace
}  // namespace gradlane::test::plan_table_test
