// rows_test.cc - what a plan says of a training
#include "tools/plan/rows.h"

#include <gtest/gtest.h>

namespace gradlane::test::plan_rows_test {
namespace {

PlanSetting setting_of(const char* gbps, const char* nodes = "4") {
  PlanOptions options;
  options.model = "resnet50";
  options.gbps = gbps;
  options.nodes = nodes;
  options.port = "card";
  options.lanes = "8";
  return make_plan_setting(options);
}

const PlanRow& row_of(const PlanRows& rows, const std::string& codec) {
  for (const PlanRow& row : rows.rows) {
    if (row.codec == codec) return row;
  }
  ADD_FAILURE() << codec;
  return rows.rows.front();
}

TEST(PlanRows, SlowLinks) {
  const PlanSetting setting = setting_of("1");
  const PlanRows rows = plan_rows(setting);
  EXPECT_EQ(rows.rows[0].codec, "plain");
  EXPECT_EQ(rows.rows[1].codec, "raw");
  EXPECT_EQ(rows.rows.back().codec, "best");
  EXPECT_EQ(row_of(rows, "raw").speedup, 1);
  EXPECT_GE(row_of(rows, "plain").speedup, 1);
  EXPECT_GT(row_of(rows, "fixed:10").speedup, 2);
  for (const PlanRow& row : rows.rows) EXPECT_LE(row.speedup, rows.rows.back().speedup * 1.02) << row.codec;
  EXPECT_EQ(row_of(rows, "qsgd:4").ways, "direct");
  EXPECT_GT(rows.enough.value(), 3);
  EXPECT_EQ(rows.rates.kind, PlanRates::Kind::kBelow);
  EXPECT_EQ(rows.named, rows.bounded->codec);
  const std::string text = advice(setting, rows);
  EXPECT_TRUE(text.starts_with("compress with ")) << text;
  EXPECT_NE(text.find("on it brings nothing here"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(" (by usual figures, gradients of N(0, 0.01); estimated: no card was measured)")) << text;
}

TEST(PlanRows, FastLinks) {
  const PlanSetting setting = setting_of("100");
  const std::string text = advice(setting, plan_rows(setting));
  EXPECT_TRUE(text.starts_with("do not compress: the exchange hides behind backward; below ")) << text;
}

// One in a hundred of the largest is a bound, and more is none.
TEST(PlanRows, Bounds) {
  for (const char* const codec : {"raw", "bf16", "fixed:10", "int8"}) EXPECT_TRUE(states_bound(codec)) << codec;
  for (const char* const codec : {"onebit", "qsgd:4", "signsgd", "dgc:1%"}) EXPECT_FALSE(states_bound(codec)) << codec;
}

// Where the only codec saves nothing, no rate is named.
TEST(PlanRows, NothingPaysAnywhere) {
  PlanSetting setting = setting_of("1");
  setting.codecs = {"int8"};
  for (CodecCost& each : setting.calibration.codecs) {
    if (each.name == "int8") each.bytes = 4;
  }
  const PlanRows rows = plan_rows(setting);
  EXPECT_EQ(rows.rates.kind, PlanRates::Kind::kNowhere);
  EXPECT_EQ(rows.named, "");
  const std::string text = advice(setting, rows);
  EXPECT_TRUE(text.starts_with("do not compress: no codec here is faster; nor does one")) << text;
}

TEST(PlanRows, OneNode) {
  const PlanSetting setting = setting_of("10", "1");
  EXPECT_EQ(advice(setting, plan_rows(setting)), "one node has nobody to exchange with");
}

}  // namespace
}  // namespace gradlane::test::plan_rows_test
