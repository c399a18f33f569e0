// known_test.cc - what a plan knows of results: rings, errors, and effects of codecs
#include "tools/plan/known.h"

#include <gtest/gtest.h>

#include <string_view>

#include "tools/plan/advice.h"

namespace gradlane::test::known_test {
namespace {

KnownRing ring_of(const char* port, double cores, unsigned nodes) { return {port, cores, {nodes, {}, {}}}; }

TEST(Known, NearestRings) {
  const KnownRing rings[] = {ring_of("udp", 1, 2), ring_of("udp", 0.5, 4), ring_of("udp", 1, 3), ring_of("card", 8, 2)};
  const auto nodes_of = [&](const char* port, double cores) {
    std::vector<unsigned> nodes;
    for (const KnownRing& each : nearest_rings(rings, port, cores)) nodes.push_back(each.ring.nodes);
    return nodes;
  };
  EXPECT_EQ(nodes_of("udp", 0), (std::vector<unsigned>{2, 3}));
  EXPECT_EQ(nodes_of("udp", 16), (std::vector<unsigned>{2, 3}));
  EXPECT_EQ(nodes_of("udp", 0.6), (std::vector<unsigned>{4}));
  EXPECT_EQ(nodes_of("card", 0.1), (std::vector<unsigned>{2}));
  EXPECT_TRUE(nodes_of("packets", 1).empty());
}

TEST(Known, Errors) {
  const StepErrors errors[] = {{true, 1, 0.1, 0.2, 30}, {true, 0.5, 0.2, 0.4, 30}, {false, 0.5, 0.3, 0.6, 30}};
  EXPECT_EQ(find_errors(errors, true, 0), &errors[0]);
  EXPECT_EQ(find_errors(errors, true, 0.4), &errors[1]);
  EXPECT_EQ(find_errors(errors, false, 8), &errors[2]);
  EXPECT_EQ(find_errors({}, false, 8), nullptr);
}

// All figures of the tables are possible ones.
TEST(Known, Tables) {
  for (const KnownRing& each : known_rings()) {
    EXPECT_GE(each.ring.nodes, 2U);
    EXPECT_GT(each.ring.link.bandwidth, 1e6);
    EXPECT_NE(find_exchange(each.ring.exchanges, "gloo", "fp32"), nullptr);
    EXPECT_NE(find_exchange(each.ring.exchanges, "gradlane", "raw"), nullptr);
    for (const MeasuredExchange& exchange : each.ring.exchanges) EXPECT_FALSE(exchange.points.empty());
  }
  for (const StepErrors& each : step_errors()) EXPECT_GE(each.most, each.median);
  for (const CodecEffect& each : codec_effects()) {
    EXPECT_EQ(kind_of_model(each.kind), each.kind);
    EXPECT_EQ(each.reached == 0, each.epochs == 0);
    EXPECT_LE(each.reached, each.seeds);
  }
}

TEST(Known, KindsOfModels) {
  for (const std::string& name : model_names()) EXPECT_NE(kind_of_model(name), "") << name;
  EXPECT_EQ(kind_of_model("resnet50"), "conv");
  EXPECT_EQ(kind_of_model("my mlp"), "mlp");
  EXPECT_EQ(kind_of_model("net"), "");
}

PlanSetting setting_of(std::vector<CodecEffect> effects) {
  PlanOptions options;
  options.model = "gpt2";
  options.gbps = "1";
  options.port = "card";
  options.codecs = {"fixed:10,signsgd"};
  PlanSetting setting = make_plan_setting(options);
  setting.effects = std::move(effects);
  return setting;
}

const PlanRow& row_of(const PlanRows& rows, std::string_view codec) {
  return *std::ranges::find(rows.rows, codec, &PlanRow::codec);
}

TEST(Known, TimeToAccuracy) {
  const PlanSetting setting = setting_of({{"gpt", "fixed:10", 1.25, 0.1, 3, 3}, {"gpt", "signsgd", 1.5, 2, 2, 3}});
  const PlanRows rows = plan_rows(setting);
  const PlanRow& fixed = row_of(rows, "fixed:10");
  EXPECT_DOUBLE_EQ(fixed.to_accuracy().value(), fixed.speedup / 1.25);
  EXPECT_FALSE(row_of(rows, "signsgd").to_accuracy());
  EXPECT_EQ(row_of(rows, "raw").to_accuracy(), row_of(rows, "raw").speedup);
  EXPECT_EQ(row_of(rows, "ideal").to_accuracy(), 1);
  const std::string text = advice(setting, rows);
  EXPECT_NE(text.find("; but a small gpt needed 1.25 times as many epochs with it, which leaves "), text.npos) << text;
}

TEST(Known, UnknownAccuracy) {
  const PlanSetting setting = setting_of({});
  const PlanRows rows = plan_rows(setting);
  EXPECT_FALSE(row_of(rows, "fixed:10").to_accuracy());
  EXPECT_EQ(advice(setting, rows).find("a small gpt"), std::string::npos);
}

TEST(Known, AccuracyThatIsNotAlwaysReached) {
  const PlanSetting setting = setting_of({{"gpt", "fixed:10", 1.1, 1.5, 2, 3}});
  const std::string text = advice(setting, plan_rows(setting));
  EXPECT_NE(text.find("; but a small gpt reached fp32's accuracy with it in 2 of 3 trainings"), text.npos) << text;
}

// A codec is not named if trainings with it reach the accuracy of fp32 later or seldom, however fast a step is.
TEST(Known, FasterStepsThatDoNotPay) {
  for (const CodecEffect& effect : {CodecEffect{"gpt", "fixed:10", 1.1, 1.5, 1, 3}, {"gpt", "fixed:10", 50, 0, 3, 3}}) {
    const PlanSetting setting = setting_of({effect, {"gpt", "signsgd", 50, 0, 3, 3}});
    const PlanRows rows = plan_rows(setting);
    EXPECT_TRUE(row_of(rows, "fixed:10").later_to_accuracy());
    EXPECT_EQ(rows.single, rows.baseline);
    const std::string text = advice(setting, rows);
    EXPECT_TRUE(text.starts_with("do not compress: the fastest codec, ")) << text;
    EXPECT_NE(text.find("; but a small gpt "), text.npos) << text;
  }
}

}  // namespace
}  // namespace gradlane::test::known_test
