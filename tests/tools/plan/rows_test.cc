// rows_test.cc - the rows and the advice of a plan for a training
#include "tools/plan/rows.h"

#include <gtest/gtest.h>

#include "tools/plan/advice.h"

namespace gradlane::test::plan_rows_test {
namespace {

// Returns a setting without effects of codecs on trainings, which change when they are measured again.
PlanSetting setting_of(const char* gbps, const char* nodes = "4") {
  PlanOptions options;
  options.model = "resnet50";
  options.gbps = gbps;
  options.nodes = nodes;
  options.port = "card";
  options.lanes = "8";
  PlanSetting setting = make_plan_setting(options);
  setting.effects.clear();
  return setting;
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
  EXPECT_EQ(rows.rows[0].codec, "ideal");
  EXPECT_EQ(rows.rows[1].codec, "raw");
  EXPECT_EQ(rows.rows.back().codec, "best");
  EXPECT_EQ(rows.baseline, &rows.rows[0]);
  EXPECT_EQ(row_of(rows, "ideal").speedup, 1);
  EXPECT_LE(row_of(rows, "raw").speedup, 1);
  EXPECT_GT(row_of(rows, "fixed:10").speedup, 2);
  for (const PlanRow& row : rows.rows) EXPECT_LE(row.speedup, rows.rows.back().speedup * 1.02) << row.codec;
  EXPECT_EQ(row_of(rows, "qsgd:4").ways, "direct");
  EXPECT_GT(rows.enough.value(), 3);
  EXPECT_EQ(rows.rates.kind, PlanRates::Kind::kBelow);
  EXPECT_EQ(rows.named, rows.bounded->codec);
  const std::string text = advice(setting, rows);
  EXPECT_TRUE(text.starts_with("compress with " + rows.named + " by ")) << text;
  EXPECT_NE(text.find(" on, " + rows.named + " gains less than 3 %"), std::string::npos) << text;
  EXPECT_NE(text.find("; predicted by usual figures, gradients of N(0, 0.01); estimated: no card was measured"),
            text.npos)
      << text;
  EXPECT_NE(compute_note(setting), "");
}

TEST(PlanRows, FastLinks) {
  const PlanSetting setting = setting_of("100");
  const std::string text = advice(setting, plan_rows(setting));
  EXPECT_TRUE(
      text.starts_with("do not compress: an ideal exchange is hidden behind the backward pass; the fastest codec, "))
      << text;
  EXPECT_NE(text.find("than an ideal exchange without compression"), text.npos) << text;
  EXPECT_NE(text.find("; below "), text.npos) << text;
}

TEST(PlanRows, WhatIsNamedBringsSomething) {
  unsigned named = 0;
  for (unsigned gbps = 2; gbps <= 60; ++gbps) {
    const PlanRows rows = plan_rows(setting_of(std::to_string(gbps).c_str()));
    for (const PlanRow* const row : {rows.single, rows.bounded}) {
      if (row == rows.baseline) continue;
      ++named;
      EXPECT_GE(row->speedup, 1 + kWorthIt) << gbps << " Gb/s: " << row->codec;
    }
  }
  EXPECT_GT(named, 0U);
}

// A codec states a bound if its error is at most one hundredth of the largest value.
TEST(PlanRows, Bounds) {
  for (const char* const codec : {"raw", "bf16", "fixed:10", "int8"}) EXPECT_TRUE(states_bound(codec)) << codec;
  for (const char* const codec : {"onebit", "qsgd:4", "signsgd", "dgc:1%", "inceptionn:10,literal"}) {
    EXPECT_FALSE(states_bound(codec)) << codec;
  }
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
  EXPECT_TRUE(text.starts_with("do not compress: the fastest codec, int8, is ")) << text;
  EXPECT_NE(text.find(" % slower than an ideal exchange without compression; no codec with an error bound pays"),
            text.npos)
      << text;
}

// Factors of times and core-seconds, beside 10 ms and 3 core-ms for a MiB of Gloo's fp32.
struct Times {
  const char* library;
  const char* codec;
  double seconds;
  double busy = 1;
};

// Returns a setting of two nodes at 1 Gb/s where these exchanges were measured.
PlanSetting measured(std::initializer_list<Times> all, bool calibrated = true) {
  PlanSetting setting = setting_of("1", "2");
  setting.calibrated = calibrated;
  setting.calibration.cores = 1;
  setting.measured_packets = setting.calibration.packets;
  setting.measured_lanes = setting.calibration.lanes;
  MeasuredRing& ring = setting.rings.emplace_back();
  ring.nodes = 2;
  ring.link = setting.calibration.link;
  setting.codecs.clear();
  for (const auto& [library, codec, seconds, busy] : all) {
    const double mib = 1048576;
    ring.exchanges.push_back(
        {library, codec, {{mib, 0.01 * seconds, 0.003 * busy}, {100 * mib, 1 * seconds, 0.3 * busy}}});
    if (ring.exchanges.back().library == "gradlane" && std::string(codec) != "raw") setting.codecs.emplace_back(codec);
  }
  return setting;
}

TEST(PlanRows, TheFastestRivalIsTheBaseline) {
  const PlanSetting setting = measured({{"gloo", "fp32", 1},
                                        {"gloo", "bf16", 0.7},
                                        {"nccl", "fp32", 0.9},
                                        {"gradlane", "raw", 1.5},
                                        {"gradlane", "fixed:adaptive", 0.3}});
  const PlanRows rows = plan_rows(setting);
  std::vector<std::string> names;
  for (const PlanRow& row : rows.rows) names.push_back(row.codec);
  EXPECT_EQ(names, (std::vector<std::string>{"ideal", "gloo", "nccl", "raw", "gloo bf16", "fixed:adaptive", "best"}));
  EXPECT_EQ(rows.baseline->codec, "nccl");
  EXPECT_EQ(rows.baseline->speedup, 1);
  EXPECT_TRUE(rows.baseline->measured);
  EXPECT_LT(rows.raw->speedup, 1);
  EXPECT_EQ(rows.named, "fixed:adaptive");
  EXPECT_NE(rows.rates.kind, PlanRates::Kind::kNowhere);
  const std::string text = advice(setting, rows);
  EXPECT_TRUE(text.starts_with("compress with fixed:adaptive by ring: ")) << text;
  EXPECT_NE(text.find("x as fast as with NCCL (gradlane.torch.State(\"fixed:adaptive\", strategy=\"ring\"))"),
            text.npos)
      << text;
  EXPECT_EQ(text.find("is predicted with the figures of"), text.npos) << text;
}

// Rivals that were measured on another host are shown, but they are not what this host has.
TEST(PlanRows, UsualFiguresAreNoBaseline) {
  const PlanRows rows = plan_rows(measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1.5}}, false));
  EXPECT_EQ(rows.baseline->codec, "ideal");
  EXPECT_LT(row_of(rows, "gloo").speedup, 1);
}

// All measured times are those of the ring that was measured: a step has them, and what backward hides of them.
TEST(PlanRows, MeasuredTimesAreTaken) {
  const PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}});
  const PlanRows rows = plan_rows(setting);
  const double mib = setting.model.elements() * 4 / 1048576;
  for (const char* const codec : {"gloo", "raw"}) {
    const StepPlan& plan = row_of(rows, codec).plan;
    EXPECT_NEAR(plan.time.exchange, 0.01 * mib, 1e-6) << codec;
    EXPECT_NEAR(plan.busy, 0.003 * mib, 1e-6) << codec;
  }
}

TEST(PlanRows, OtherAnswersThanACodec) {
  const auto text_of = [](std::initializer_list<Times> all) {
    const PlanSetting setting = measured(all);
    return advice(setting, plan_rows(setting));
  };
  std::string text = text_of({{"gloo", "fp32", 1}, {"gradlane", "raw", 1.1}, {"gradlane", "fixed:10", 1.05}});
  EXPECT_TRUE(text.starts_with("do not compress: the fastest codec, fixed:10, is 4 % slower than Gloo")) << text;
  text = text_of({{"gloo", "fp32", 1}, {"gradlane", "raw", 1.1}, {"gradlane", "fixed:10", 0.98}});
  EXPECT_TRUE(
      text.starts_with("do not compress: the fastest codec, fixed:10, is 2 % faster than Gloo, which is less "
                       "than the 3 % that count"))
      << text;
  text = text_of({{"gloo", "fp32", 1}, {"gradlane", "raw", 0.8}, {"gradlane", "fixed:10", 0.79}});
  EXPECT_TRUE(text.starts_with("do not compress, but use gradlane by ring: steps are 1.2")) << text;
  EXPECT_NE(
      text.find("x as fast as with Gloo (codec: raw in the daemons' configuration); the fastest codec of gradlane, "
                "fixed:10, is 2"),
      text.npos)
      << text;
  text = text_of({{"gloo", "fp32", 1}, {"gloo", "bf16", 0.7}, {"gradlane", "raw", 2}, {"gradlane", "fixed:10", 0.7}});
  EXPECT_TRUE(text.starts_with("compress with bf16 of PyTorch with Gloo: steps are 1.")) << text;
  EXPECT_NE(text.find("bf16_compress_hook)); the fastest codec of gradlane, fixed:10, is "), text.npos) << text;
  text = text_of({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}, {"gradlane", "signsgd", 0.5}});
  EXPECT_TRUE(text.starts_with("compress only with signsgd, which has no error bound, by ring: ")) << text;
}

// A codec whose exchange keeps the core busy takes that from backward. One that waits for links does not.
TEST(PlanRows, CoresAreShared) {
  const PlanSetting setting = measured({{"gloo", "fp32", 1},
                                        {"gradlane", "raw", 0.8, 0.1},
                                        {"gradlane", "bf16", 0.5, 0.1},
                                        {"gradlane", "fixed:10", 0.5, 5. / 3}});
  const PlanRows rows = plan_rows(setting);
  const StepPlan& waits = row_of(rows, "bf16").plan;
  const StepPlan& works = row_of(rows, "fixed:10").plan;
  EXPECT_DOUBLE_EQ(waits.time.exchange, works.time.exchange);
  const double around = step_overhead(setting.buckets, setting.compute(), {1, 1});
  EXPECT_NEAR(works.time.step, rows.compute + works.busy + around, 1e-6);
  EXPECT_LT(waits.time.step, works.time.step * 0.9);
  PlanSetting many = setting;
  many.calibration.cores = 8;
  const PlanRows more = plan_rows(many);
  EXPECT_DOUBLE_EQ(row_of(more, "bf16").plan.time.step, row_of(more, "fixed:10").plan.time.step);
}

// Links that are faster than the measured ones do not make work in cores faster.
TEST(PlanRows, MeasuredWorkStays) {
  PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}, {"gradlane", "topk:1%+fixed:10", 0.3}});
  const double before = row_of(plan_rows(setting), "gloo").plan.time.exchange;
  setting = with_gbps(setting, 100);
  const PlanRows rows = plan_rows(setting);
  const double mib = setting.model.elements() * 4 / 1048576;
  for (const char* const codec : {"gloo", "raw", "topk:1%+fixed:10"}) {
    EXPECT_GE(row_of(rows, codec).plan.time.exchange, 0.003 * mib * (1 - 1e-9)) << codec;
  }
  EXPECT_LT(row_of(rows, "gloo").plan.time.exchange, before);
}

// Strategies do not change what other libraries and an ideal exchange need.
TEST(PlanRows, StrategiesAreGradlanesOwn) {
  PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}, {"gradlane", "fixed:10", 0.5}});
  setting.nodes = 8;
  const PlanRows usual = plan_rows(setting);
  setting.strategies_given = true;
  setting.strategies = find_strategies("rings:4");
  const PlanRows rows = plan_rows(setting);
  EXPECT_GT(row_of(rows, "raw").plan.time.exchange, 0);
  EXPECT_EQ(row_of(rows, "best").ways, "rings:4");
  for (const char* const codec : {"ideal", "gloo"}) {
    EXPECT_GT(row_of(rows, codec).plan.time.exchange, 0) << codec;
    EXPECT_EQ(row_of(rows, codec).plan.time.exchange, row_of(usual, codec).plan.time.exchange) << codec;
  }
}

// With --strategy, a measured time changes as predictions for this strategy and for the measured one differ.
TEST(PlanRows, StrategiesOfTheUser) {
  PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}});
  setting.nodes = 8;
  setting.calibration.link.latency = 0.01;
  const PlanRow usual = codec_row(setting, "raw");
  EXPECT_EQ(usual.ways, "ring");
  setting.strategies_given = true;
  setting.strategies = find_strategies("direct");
  const PlanRow direct = codec_row(setting, "raw");
  EXPECT_TRUE(direct.measured && direct.moved && !usual.moved);
  EXPECT_EQ(direct.ways, "direct");
  EXPECT_LT(direct.plan.time.exchange, usual.plan.time.exchange);
  EXPECT_GT(direct.plan.time.exchange, 0);
}

// Longer packets than those that were measured make exchanges faster.
TEST(PlanRows, LongerPackets) {
  PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}});
  setting.calibration.packets.send_ns = setting.calibration.packets.receive_ns = 400000;
  setting.measured_packets = setting.calibration.packets;
  const double before = row_of(plan_rows(setting), "raw").plan.time.exchange;
  setting.calibration.packets.set_mtu(9000);
  EXPECT_LT(row_of(plan_rows(setting), "raw").plan.time.exchange, before * 0.9);
}

// Nothing sends its bytes faster than links carry them, whatever was measured.
TEST(PlanRows, LinksAreALimit) {
  PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}});
  setting.calibration.lanes = 256;
  setting.calibration.packets.set_mtu(9000);
  setting = with_gbps(setting, 5);
  const PlanRows rows = plan_rows(setting);
  const StepPlan& plan = row_of(rows, "raw").plan;
  EXPECT_GE(plan.time.exchange, plan.sum.sent_bytes * 8 / 5e9 * 0.999);
}

// All-reduces of one size only are not taken.
TEST(PlanRows, OneSizeIsNotEnough) {
  PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}});
  for (MeasuredExchange& each : setting.rings.front().exchanges) each.points.resize(1);
  const PlanRows rows = plan_rows(setting);
  EXPECT_EQ(rows.baseline->codec, "ideal");
  EXPECT_FALSE(rows.raw->measured);
}

// A codec that was predicted from parts does not compete with those that were measured.
TEST(PlanRows, PartsDoNotCompete) {
  PlanSetting setting = measured({{"gloo", "fp32", 1}, {"gradlane", "raw", 1}, {"gradlane", "bf16", 0.6}});
  setting.codecs = {"bf16", "fixed:10"};
  const PlanRows rows = plan_rows(setting);
  EXPECT_FALSE(row_of(rows, "fixed:10").measured);
  EXPECT_EQ(rows.bounded->codec, "bf16");
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
  EXPECT_NE(text.find("fixed:10 rounds gradients below 2^-10 to 0: fixed:adaptive"), text.npos) << text;
  setting.codecs = {"fixed:adaptive"};
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
  EXPECT_TRUE(
      text.ends_with("; but these figures do not fit this ring: the predicted time is 4.0 times too low; when "
                     "measured, compressing was "
                     "0.80 times as fast as raw, so set codec: auto:2^-10 in the daemons' configuration, which "
                     "compares both during the "
                     "training"))
      << text;
}

TEST(Advice, WhatIsAssumed) {
  PlanOptions options;
  options.model = "ResNet50";
  std::string text = advice(make_plan_setting(options), plan_rows(make_plan_setting(options)));
  EXPECT_NE(text.find("; 4 nodes and 10 Gb/s assumed: --nodes, --gbps"), text.npos) << text;
  options.nodes = "4";
  options.compute_ms = "100";
  text = advice(make_plan_setting(options), plan_rows(make_plan_setting(options)));
  EXPECT_TRUE(text.ends_with("; 10 Gb/s assumed: --gbps")) << text;
  EXPECT_EQ(compute_note(make_plan_setting(options)), "");
  // "ideal" is not a strategy that a user can choose.
  EXPECT_EQ(text.find("by ideal"), text.npos) << text;
}

}  // namespace
}  // namespace gradlane::test::plan_rows_test
