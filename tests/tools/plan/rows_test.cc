// rows_test.cc - the rows and the advice of a plan for a training
#include "tools/plan/rows.h"

#include <gtest/gtest.h>

#include "tools/plan/advice.h"

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
  EXPECT_TRUE(text.starts_with("compress with " + rows.named + " by ")) << text;
  EXPECT_NE(text.find("on it gains nothing here"), std::string::npos) << text;
  EXPECT_NE(text.find(" (by usual figures, gradients of N(0, 0.01); estimated: no card was measured)"), text.npos)
      << text;
  EXPECT_NE(compute_note(setting), "");
}

TEST(PlanRows, FastLinks) {
  const PlanSetting setting = setting_of("100");
  const std::string text = advice(setting, plan_rows(setting));
  EXPECT_TRUE(text.starts_with("do not compress: the exchange is hidden behind the backward pass; below ")) << text;
}

TEST(PlanRows, WhatIsNamedBringsSomething) {
  unsigned named = 0;
  for (unsigned gbps = 2; gbps <= 60; ++gbps) {
    const PlanRows rows = plan_rows(setting_of(std::to_string(gbps).c_str()));
    for (const PlanRow* const row : {rows.single, rows.bounded}) {
      if (row->codec == "raw") continue;
      ++named;
      EXPECT_GE(row->speedup, 1 + kWorthIt) << gbps << " Gb/s: " << row->codec;
    }
  }
  EXPECT_GT(named, 0U);
}

// A codec states a bound if its error is at most one hundredth of the largest value.
TEST(PlanRows, Bounds) {
  for (const char* const codec : {"raw", "bf16", "fixed:10", "int8"}) EXPECT_TRUE(states_bound(codec)) << codec;
  for (const char* const codec : {"onebit", "qsgd:4", "signsgd", "dgc:1%"}) EXPECT_FALSE(states_bound(codec)) << codec;
}

// If the only codec saves nothing, the plan names no rate.
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
  EXPECT_TRUE(text.starts_with("do not compress: no codec here is faster; no codec with an error bound pays")) << text;
}

TEST(PlanRows, OneNode) {
  const PlanSetting setting = setting_of("10", "1");
  EXPECT_EQ(advice(setting, plan_rows(setting)), "one node: there is nothing to send, and nothing to compress");
}

// configuration_text() returns the settings with which the daemons use a row's codec and strategy.
TEST(Advice, ConfigurationLines) {
  EXPECT_EQ(configuration_text("fixed:10", "ring", {}), "codec: auto:2^-10");
  EXPECT_EQ(configuration_text("fixed:10", "direct", {}), "codec: auto:2^-10 and strategies: [ring, direct]");
  EXPECT_EQ(configuration_text("fixed:10", "direct", {"ring", "direct"}), "codec: auto:2^-10");
  EXPECT_EQ(configuration_text("bf16", "direct+ring", {}), "codec: auto:rel=8 and strategies: [ring, direct]");
  EXPECT_EQ(configuration_text("signsgd", "direct", {"ring", "direct"}), "codec: signsgd and strategies: [direct]");
  EXPECT_EQ(configuration_text("signsgd", "ring+direct", {"ring", "direct"}), "codec: signsgd, strategy: auto");
  EXPECT_EQ(configuration_text("signsgd", "ring", {}), "codec: signsgd");
}

TEST(Advice, SaysWhatFixedLoses) {
  PlanSetting setting = setting_of("1");
  setting.codecs = {"fixed:10"};
  std::string text = advice(setting, plan_rows(setting));
  EXPECT_NE(text.find("rounds gradients below 2^-10 to 0: fixed:adaptive"), text.npos) << text;
  setting.follows = true;
  text = advice(setting, plan_rows(setting));
  EXPECT_TRUE(text.starts_with("compress with fixed:adaptive by ")) << text;
  EXPECT_NE(text.find("(gradlane.torch.State(\"fixed:adaptive\", strategy=\""), text.npos) << text;
  EXPECT_NE(text.find("is predicted with the figures of fixed:10, which"), text.npos) << text;
}

// The advice names a strategy that the calibrated ring allows. If another strategy is better, the advice says that all
// nodes would have to allow it.
TEST(Advice, WhatTheRingAllows) {
  PlanSetting setting = setting_of("1", "32");
  setting.calibration.link.latency = 2e-3;
  setting.calibration.strategies = {"ring"};
  setting.strategies = find_strategies("ring");
  setting.strategies_not_allowed = find_strategies("direct");
  setting.codecs = {"fixed:10"};
  const std::string text = advice(setting, plan_rows(setting));
  EXPECT_TRUE(text.starts_with("compress with fixed:10 by ring: ")) << text;
  EXPECT_NE(text.find("; with direct allowed on all nodes, fixed:10 by direct reaches "), text.npos) << text;
  EXPECT_NE(text.find("(codec: auto:2^-10 and strategies: [ring, direct])"), text.npos) << text;
}

TEST(Advice, TinyModels) {
  PlanSetting setting = setting_of("1");
  setting.buckets = {{1000, 1}};
  const std::string text = advice(setting, plan_rows(setting));
  EXPECT_TRUE(text.starts_with("do not compress: no bucket has 1024 elements")) << text;
}

TEST(Advice, FiguresThatDoNotFit) {
  PlanSetting setting = setting_of("1");
  setting.calibration.checks = {4, 0.8};
  const std::string text = advice(setting, plan_rows(setting));
  EXPECT_TRUE(text.ends_with(
      "But these figures do not fit this ring: the predicted time is 4.0 times too low; when measured, compressing was "
      "0.80 times as fast as raw; set codec: auto:2^-10 in the daemons' configuration, which compares both during the "
      "training"))
      << text;
}

TEST(Advice, WhatIsAssumed) {
  PlanOptions options;
  options.model = "ResNet50";
  std::string text = advice(make_plan_setting(options), plan_rows(make_plan_setting(options)));
  EXPECT_NE(text.find("; 4 nodes and 10 Gb/s assumed: --nodes, --gbps)"), text.npos) << text;
  options.nodes = "4";
  options.compute_ms = "100";
  text = advice(make_plan_setting(options), plan_rows(make_plan_setting(options)));
  EXPECT_TRUE(text.ends_with("; 10 Gb/s assumed: --gbps)")) << text;
  EXPECT_EQ(compute_note(make_plan_setting(options)), "");
  // "plain" is not a strategy that a user can choose.
  EXPECT_EQ(text.find("plain"), text.npos) << text;
}

}  // namespace
}  // namespace gradlane::test::plan_rows_test
