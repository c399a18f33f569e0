// choices_test.cc - tests of the keys that let the library choose, and of files of plans
#include "config/choices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "config/loader.h"

namespace gradlane::test::choices_test {
namespace {

const std::vector<StrategyId> kStrategies = find_strategies("ring,direct");

std::string fault_of(const std::string& text) {
  try {
    (void)parse_plan(text, "p.yaml", kStrategies, 4);
    return "none";
  } catch (const SetupError& error) {
    return error.what();
  }
}

// error_bound() returns the largest `bits` for which the codec's error is at most 2^-bits, or 0.
TEST(ErrorBounds, AreNotBelowTheError) {
  for (const char* const name : {"fixed:10", "inceptionn:10", "bf16", "fp16", "int8", "fp8", "qsgd:8"}) {
    const Codec codec = find_codec(name);
    const gl_auto bound = error_bound(codec);
    const CodecError error = codec.error();
    const double most = bound.bound == GL_BOUND_ABSOLUTE ? error.absolute : error.relative + error.of_largest;
    EXPECT_LE(most, std::ldexp(1, -static_cast<int>(bound.bits))) << name;
    EXPECT_TRUE(bound.bits == 0 || 2 * most > std::ldexp(1, -static_cast<int>(bound.bits))) << name;
  }
}

TEST(AutoNames, Which) {
  gl_auto asked{};
  for (const char* const name : {"auto", "auto:2^-1", "auto:2^-10", "auto:2^-30", "auto:rel=6"}) {
    EXPECT_TRUE(gl_parse_auto(name, &asked)) << name;
  }
  for (const char* const name : {"auto:", "auto:10", "auto:2^-0", "auto:2^-31", "auto:2^-01",
                                 "auto:rel=", "auto:rel=99", "automatic", "Auto", "", "fixed:adaptive", "auto/raw"}) {
    EXPECT_FALSE(gl_parse_auto(name, &asked)) << name;
  }
  EXPECT_TRUE(gl_begins_auto("auto/raw"));
  EXPECT_FALSE(gl_begins_auto("automatic"));
}

TEST(Plans, Parsed) {
  const auto plan = parse_plan(
      "plan: 1\nchoices:\n  - {from: 0, to: 64KiB, strategy: direct, codec: raw}\n"
      "  - {from: 64KiB, strategy: ring, codec: 'fixed:10'}\n",
      "p.yaml", kStrategies);
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0].to, 65536U);
  EXPECT_EQ(plan[0].strategy, find_strategy("direct"));
  EXPECT_EQ(plan[1].from, 65536U);
  EXPECT_GT(plan[1].to, uint64_t{1} << 40);
  EXPECT_EQ(plan[1].codec.name(), "fixed:10");
  const auto again = parse_plan(plan_text(plan), "again", kStrategies);
  EXPECT_EQ(plan_text(again), plan_text(plan));
  EXPECT_EQ(plan_text(plan).find('#'), std::string::npos);
}

TEST(Plans, SizesWithoutARowAreNamed) {
  const auto plan = parse_plan(
      "plan: 1\nchoices:\n  - {from: 8KiB, to: 16KiB, strategy: ring, codec: raw}\n"
      "  - {from: 32KiB, to: 1MiB, strategy: ring, codec: raw}\n",
      "p.yaml", kStrategies);
  const std::string text = plan_text(plan);
  EXPECT_EQ(text,
            "plan: 1\nchoices:\n"
            "  # 0 to 8KiB has no row: raw, by the first strategy\n"
            "  - {from: 8KiB, to: 16KiB, strategy: 'ring', codec: 'raw'}\n"
            "  # 16KiB to 32KiB has no row: raw, by the first strategy\n"
            "  - {from: 32KiB, to: 1MiB, strategy: 'ring', codec: 'raw'}\n"
            "  # 1MiB and more has no row: raw, by the first strategy\n");
  EXPECT_EQ(parse_plan(text, "again", kStrategies).size(), 2U);
}

TEST(Plans, Faults) {
  const auto expect = [](const std::string& choice, const std::string& says) {
    const std::string fault = fault_of("plan: 1\nchoices:\n  - " + choice + "\n");
    EXPECT_NE(fault.find(says), std::string::npos) << fault;
    EXPECT_EQ(fault.find("p.yaml:3:"), 0U) << fault;
  };
  expect("{from: 0, strategy: rings:2, codec: raw}",
         "is not in `strategies` of the configuration, allowed: ring, direct; or add it there");
  expect("{from: 0, strategy: sideways, codec: raw}", "sideways");
  expect("{from: 0, strategy: ring, codec: fixed:99}", "fixed:99");
  expect("{from: 0, strategy: ring}", "codec");
  expect("{from: 0, strategy: direct, codec: 'topk:1%'}", "topk:1% has no error bound");
  expect("{from: 0, strategy: direct, codec: fp16}", "fp16 has no error bound");
  expect("{from: 0, strategy: ring, codec: int8}", "int8 does not add, and ring has no rank that adds for all");
  expect("{from: 2KiB, to: 1KiB, strategy: ring, codec: raw}", "is an empty range");
  expect("{from: 0, to: 1KiB, strategy: ring, codec: raw, more: 1}", "more");
  EXPECT_NE(fault_of("plan: 2\nchoices: []\n").find("p.yaml:1:"), std::string::npos);
  EXPECT_NE(fault_of("plan: 1\nchoices:\n  - {from: 0, to: 8KiB, strategy: ring, codec: raw}\n"
                     "  - {from: 4KiB, strategy: ring, codec: raw}\n")
                .find("p.yaml:4:"),
            std::string::npos);
}

const std::string kRing =
    "rank: 0\nnodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}]\nports: [{device: net_tap0}]\n";

TEST(Choices, OfAConfiguration) {
  const NodeConfig config =
      parse_config(kRing + "codec: auto:2^-10\nstrategy: auto\nstrategies: [ring, direct]\n", "f");
  EXPECT_EQ(config.auto_codec, "auto:2^-10");
  EXPECT_EQ(config.codec.name(), "raw");
  EXPECT_TRUE(config.auto_strategy);
  const auto value = [](const std::string& text) {
    return auto_scope_value(auto_scope(parse_config(kRing + text, "f")));
  };
  EXPECT_EQ(auto_scope_value(auto_scope(config)), 0x10a02U);
  EXPECT_EQ(value("codec: auto:rel=7\n"), 0x703U);
  EXPECT_EQ(value("codec: auto\n"), 1U);
  EXPECT_EQ(value("codec: fixed:10\n"), 0U);
  EXPECT_TRUE(parse_config(kRing + "codec: fixed:10\n", "f").auto_codec.empty());
  EXPECT_THROW((void)parse_config(kRing + "codec: auto:10\n", "f"), SetupError);
}

TEST(Choices, WhatIsRefused) {
  const auto expect = [](const std::string& key, const std::string& says) {
    try {
      (void)parse_config(kRing + key + "\n", "f");
      ADD_FAILURE() << key;
    } catch (const SetupError& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  expect("strategy: ring", "set `strategies: [ring]` for that: it lists the strategies that operations may use");
  expect("strategy: direct", "'direct' is not for this key, allowed: auto; set `strategies: [direct]`");
  expect("strategy: fast", "'fast' is unknown, allowed: auto");
  expect("codec: 'Auto'", "\n  auto (exact), auto:2^-B or auto:rel=B");
  expect("plan: /nowhere/plan.yaml", "plan: /nowhere/plan.yaml: cannot read the plan: No such file or directory");
}

std::string warning_of(const std::string& keys) { return choices_warning(parse_config(kRing + keys, "f")); }

TEST(Choices, KeysWithoutEffectAreWarnedOf) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "gradlane-idle-plan.yaml";
  std::ofstream(file) << "plan: 1\nchoices:\n  - {from: 0, strategy: ring, codec: 'fixed:10'}\n";
  const std::string plan = "plan: " + file.string() + "\n";
  EXPECT_TRUE(warning_of(plan + "codec: raw\n")
                  .starts_with("plan " + file.string() + ": only calls that name codec auto use it"));
  EXPECT_TRUE(warning_of(plan).starts_with("plan "));
  EXPECT_TRUE(
      warning_of("calibration: /c.yaml\n").starts_with("calibration /c.yaml: only calls that name codec auto use it"));
  EXPECT_NE(warning_of(plan + "codec: auto\n").find("only calls that name a bound use its fixed:10"),
            std::string::npos);
  EXPECT_EQ(warning_of(plan + "codec: auto:2^-10\n"), "");
  EXPECT_EQ(warning_of(plan + "strategy: auto\n"), "");
  EXPECT_EQ(warning_of("codec: raw\n"), "");
  std::filesystem::remove(file);
}

TEST(Choices, PathsAreRelativeToTheFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "gradlane-choices";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "plan.yaml") << "plan: 1\nchoices:\n  - {from: 0, strategy: ring, codec: raw}\n";
  const std::string text = kRing + "codec: auto\nplan: plan.yaml\ncalibration: ../c.yaml\n";
  const NodeConfig config = parse_config(text, (folder / "node.yaml").string());
  EXPECT_EQ(config.plan.size(), 1U);
  EXPECT_EQ(config.plan_file, (folder / "plan.yaml").string());
  EXPECT_EQ(config.calibration, (folder / "../c.yaml").string());
  EXPECT_THROW((void)parse_config(text, "node.yaml"), SetupError);  // the plan is not in the current folder
  std::filesystem::remove_all(folder);
}

TEST(Choices, APlanIsReadWithItsConfiguration) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "gradlane-plan.yaml";
  std::ofstream(file) << "plan: 1\nchoices:\n  - {from: 0, strategy: direct, codec: raw}\n";
  const std::string text = kRing + "codec: auto\nstrategies: [ring, direct]\nplan: " + file.string() + "\n";
  EXPECT_EQ(parse_config(text, "f").plan.size(), 1U);
  std::ofstream(file) << "plan: 1\nchoices:\n  - {from: 0, strategy: rings:2, codec: raw}\n";
  try {
    (void)parse_config(text, "f");
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find(file.string() + ":3:"), std::string::npos) << error.what();
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace gradlane::test::choices_test
