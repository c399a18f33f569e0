// options_test.cc - options of `gradlane plan`, and ranges of --what-if
#include "tools/plan/options.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "config/calibration_file.h"
#include "tools/calibrate/machine.h"

namespace gradlane::test::plan_options_test {
namespace {

PlanOptions options_of(const std::string& model) {
  PlanOptions options;
  options.model = model;
  return options;
}

std::string fault_of(const PlanOptions& options) {
  try {
    (void)parse_what_if(options.what_if, make_plan_setting(options));
  } catch (const SetupError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanOptions, Defaults) {
  const PlanSetting setting = make_plan_setting(options_of("resnet50"));
  EXPECT_EQ(setting.nodes, 4U);
  EXPECT_EQ(setting.gbps, 10);
  EXPECT_DOUBLE_EQ(setting.calibration.link.bandwidth, 1.25e9);
  EXPECT_NEAR(setting.compute().backward, 0.122, 1e-9);
  EXPECT_FALSE(setting.calibrated);
  EXPECT_EQ(setting.cost("fixed:10").name, "fixed:10");
}

TEST(PlanOptions, Compute) {
  PlanOptions options = options_of("vgg16");
  options.compute_ms = "300";
  options.batch = "10";
  const PlanSetting setting = make_plan_setting(options);
  EXPECT_NEAR(setting.compute().seconds(), 0.3, 1e-9);
  EXPECT_NEAR(setting.compute().backward, 0.2, 1e-9);
}

TEST(PlanOptions, SayWhatIsWrong) {
  EXPECT_NE(fault_of(options_of("")).find("--model is missing: alexnet"), std::string::npos);
  EXPECT_NE(fault_of(options_of("lenet")).find("neither a file nor a known model"), std::string::npos);
  const auto with = [](auto change) {
    PlanOptions options = options_of("resnet50");
    change(options);
    return fault_of(options);
  };
  EXPECT_EQ(with([](PlanOptions& o) { o.nodes = "0"; }), "--nodes '0': must be a whole number from 1 to 256");
  EXPECT_EQ(with([](PlanOptions& o) { o.gbps = "fast"; }), "--gbps 'fast': must be a number from 0.001 to 100000");
  EXPECT_EQ(with([](PlanOptions& o) { o.port = "x"; }), "--port 'x': must be udp, packets or card");
  EXPECT_NE(with([](PlanOptions& o) { o.codecs = {"fixed:11"}; }).find("no figures for it without a calibration"),
            std::string::npos);
  EXPECT_NE(with([](PlanOptions& o) { o.strategies = {"rings:3"}; }), "");
  EXPECT_NE(with([](PlanOptions& o) { o.calibration = "/nowhere"; }), "");
  EXPECT_NE(with([](PlanOptions& o) { o.what_if = {"rtt=1..2"}; }).find("must be nodes=, gbps="), std::string::npos);
  EXPECT_EQ(with([](PlanOptions& o) { o.what_if = {"nodes=8..4"}; }),
            "--what-if 'nodes=8..4': the lower end comes first, nodes=4..8");
  const auto card = [](PlanOptions& o) {
    o.codecs = {"fixed:8"};
    o.port = "card";
  };
  EXPECT_NE(with(card).find("there are figures for raw, pack, bf16, fp16, fixed:10, "), std::string::npos);
  EXPECT_NE(with([](PlanOptions& o) { o.what_if = {"nodes=2.5"}; }), "");
  EXPECT_NE(with([](PlanOptions& o) { o.what_if = {"gbps=1,,2"}; }), "");
  EXPECT_NE(with([](PlanOptions& o) { o.model = std::string(5000, 'x'); }).find("neither a file"), std::string::npos);
}

TEST(PlanOptions, FixedAuto) {
  PlanOptions options = options_of("resnet50");
  options.codecs = {"fixed:auto,fixed:10"};
  const PlanSetting setting = make_plan_setting(options);
  EXPECT_EQ(setting.codecs, (std::vector<std::string>{"fixed:adaptive", "fixed:10"}));
  EXPECT_EQ(setting.find_cost("fixed:adaptive"), &setting.cost("fixed:10"));
}

// A strategy that does not fit a number of nodes is an error, and so is a codec that none of the strategies carries.
TEST(PlanOptions, WaysThatCannotBe) {
  PlanOptions options = options_of("resnet50");
  options.strategies = {"rings:4"};
  options.what_if = {"nodes=8,6"};
  EXPECT_TRUE(fault_of(options).starts_with("--strategy, 6 nodes: ")) << fault_of(options);
  options.what_if = {"nodes=8,16"};
  EXPECT_EQ(fault_of(options), "");
  options.what_if.clear();
  options.strategies = {"ring"};
  options.port = "card";
  EXPECT_EQ(make_plan_setting(options).codecs,
            (std::vector<std::string>{"pack", "bf16", "fixed:10", "signsgd", "dgc:1%"}));
  for (const char* const codec : {"terngrad", "qsgd:4"}) {
    options.codecs = {codec};
    options.strategies = {"ring"};
    EXPECT_TRUE(fault_of(options).starts_with(std::string("--codecs '") + codec + "': ")) << fault_of(options);
    options.strategies = {"ring,direct"};
    EXPECT_EQ(fault_of(options), "");
  }
}

// If the user names no calibration, a default file that cannot be used is not an error.
TEST(PlanOptions, DefaultCalibrations) {
  const std::string path = testing::TempDir() + "options_test.yaml";
  PlanOptions options = options_of("resnet50");
  options.places = {"/nowhere/calibration.yaml"};
  EXPECT_EQ(make_plan_setting(options).ignored, "");
  std::ofstream(path) << "calibration: 7\n";
  options.places.push_back(path);
  PlanSetting setting = make_plan_setting(options);
  EXPECT_FALSE(setting.calibrated);
  EXPECT_NE(setting.ignored.find("version '7'"), std::string::npos) << setting.ignored;
  options.port = "card";
  EXPECT_EQ(make_plan_setting(options).ignored, "");
  options.port.clear();
  options.calibration = path;
  EXPECT_NE(fault_of(options), "");

  Calibration calibration = usual_calibration(PlanPort::kPackets);
  const CalibrationUse here = this_use();
  calibration.made_s = here.now_s;
  calibration.host = here.host;
  calibration.cpu = here.cpu;
  calibration.isa = here.isa;
  calibration.program = here.program;
  options.calibration.clear();
  const auto read = [&] {
    std::ofstream(path) << calibration_text(calibration);
    return make_plan_setting(options);
  };
  setting = read();
  // A calibration that cannot be used does not hide one that can.
  const std::string stale = testing::TempDir() + "options_stale.yaml";
  std::ofstream(stale) << "calibration: 7\n";
  options.places.insert(options.places.begin(), stale);
  EXPECT_TRUE(make_plan_setting(options).calibrated);
  EXPECT_EQ(make_plan_setting(options).ignored, "");
  EXPECT_TRUE(setting.calibrated) << setting.ignored;
  EXPECT_EQ(setting.nodes, 4U);  // the default, because the calibration has no links
  EXPECT_EQ(setting.gbps, 10);
  EXPECT_GT(setting.calibration.link.latency, 0);
  calibration.links = {{0, 1, 1e-5, 1.25e8}, {1, 2, 1e-5, 1e8}, {2, 0, 1e-5, 1e8}};
  setting = read();
  EXPECT_EQ(setting.nodes, 3U);
  EXPECT_NEAR(setting.gbps, 0.8, 1e-9);
  EXPECT_FALSE(setting.nodes_assumed || setting.gbps_assumed);
  EXPECT_EQ(setting.strategies.size(), 2U);
  EXPECT_TRUE(setting.rings.empty());
  EXPECT_EQ(setting.codecs.front(), "pack");
  // Exchanges that were measured are those of the calibrated ring, whatever links the user asks about.
  calibration.exchanges = {{"gloo", "fp32", {{1e6, 0.01, 0.01}}},
                           {"gradlane", "raw", {{1e6, 0.01, 0.01}}},
                           {"gradlane", "fixed:adaptive", {{1e6, 0.01, 0.01}}},
                           {"gradlane", "topk:1%+fixed:10", {{1e6, 0.01, 0.01}}}};
  calibration.cores = 0.5;
  options.gbps = "5";
  options.nodes = "8";
  setting = read();
  ASSERT_EQ(setting.rings.size(), 1U);
  EXPECT_EQ(setting.rings[0].nodes, 3U);
  EXPECT_NEAR(setting.rings[0].link.bandwidth, 1e8, 1);
  EXPECT_EQ(setting.calibration.cores, 0.5);
  EXPECT_EQ(setting.codecs, (std::vector<std::string>{"fixed:adaptive", "topk:1%+fixed:10"}));
  options.codecs = {"topk:1%+fixed:10,fixed:10"};
  options.cores = "8";
  setting = read();
  EXPECT_EQ(setting.codecs, (std::vector<std::string>{"topk:1%+fixed:10", "fixed:10"}));
  EXPECT_EQ(setting.calibration.cores, 8);
  options.codecs = {"topk:2%+fixed:10"};
  EXPECT_NE(fault_of(options).find("figures for raw, fixed:adaptive, topk:1%+fixed:10, pack, bf16, "),
            std::string::npos)
      << fault_of(options);
  options.codecs.clear();
  calibration.strategies = {"ring"};
  setting = read();
  EXPECT_EQ(setting.strategies, find_strategies("ring"));
  EXPECT_EQ(setting.strategies_not_allowed, find_strategies("direct"));
  std::remove(path.c_str());
}

TEST(PlanOptions, Ranges) {
  const PlanSetting setting = make_plan_setting(options_of("resnet50"));
  const WhatIf grid = parse_what_if({"nodes=4..96", "gbps=0.1..400", "batch=16,64"}, setting);
  EXPECT_EQ(grid.nodes, (std::vector<double>{4, 8, 16, 32, 64, 96}));
  const std::vector<double> rates = {0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 400};
  ASSERT_EQ(grid.gbps.size(), rates.size());
  for (size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(grid.gbps[i], rates[i], 1e-9);
  EXPECT_EQ(grid.batch, (std::vector<double>{16, 64}));
  EXPECT_EQ(grid.compute, (std::vector<double>{1}));
}

}  // namespace
}  // namespace gradlane::test::plan_options_test
