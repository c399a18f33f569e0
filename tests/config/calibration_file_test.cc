// calibration_file_test.cc - tests of calibration files: what is written can be read again; faults
#include "config/calibration_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace gradlane::test::calibration_file_test {
namespace {

Calibration measured() {
  Calibration calibration = usual_calibration(PlanPort::kUdp);
  calibration.made_s = 1795452265;
  calibration.host = "node 'a': 1";
  calibration.cpu = "Some CPU @ 2.00GHz";
  calibration.isa = "avx2: #1";
  calibration.program = "0.1.0";
  calibration.lanes = 2;
  calibration.contention = 1.25;
  calibration.checks = {2.5, 0.8};
  calibration.strategies = {"ring", "aggregator:0,stream"};
  calibration.cores = 0.5;
  calibration.exchanges = {{"gloo", "fp32", {{65536, 812e-6, 400e-6}, {4194304, 0.02, 0.01}}},
                           {"gradlane", "fixed:adaptive", {{65536, 300e-6, 0}}}};
  calibration.links = {{0, 1, 30e-6, 1.25e9}, {1, 0, 45e-6, 1.2e9, true}};
  return calibration;
}

std::string fault_of(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  text.replace(at, from.size(), to);
  try {
    (void)parse_calibration(text, "file");
  } catch (const SetupError& error) {
    return error.what();
  }
  return "";
}

TEST(CalibrationFile, ReadsWhatIsWritten) {
  const std::string text = calibration_text(measured());
  const Calibration read = parse_calibration(text, "file");
  EXPECT_EQ(calibration_text(read), text);
  EXPECT_EQ(read.host, "node 'a': 1");
  EXPECT_EQ(read.made_s, 1795452265U);
  EXPECT_EQ(read.codecs.size(), measured().codecs.size());
  EXPECT_DOUBLE_EQ(read.link.latency, 45e-6);
  EXPECT_DOUBLE_EQ(read.link.bandwidth, 1.2e9);
  EXPECT_TRUE(read.link.at_least);
  EXPECT_FALSE(read.links.front().at_least);
  EXPECT_TRUE(read.find("qsgd:4")->owners);
  EXPECT_TRUE(read.find("raw")->exact);
  EXPECT_DOUBLE_EQ(read.find("signsgd")->results, 0.1364);
  EXPECT_DOUBLE_EQ(read.checks.times_as_long, 2.5);
  EXPECT_DOUBLE_EQ(read.checks.speedup, 0.8);
  EXPECT_EQ(read.strategies, measured().strategies);
  EXPECT_EQ(read.cores, 0.5);
  ASSERT_EQ(read.exchanges.size(), 2u);
  EXPECT_EQ(find_exchange(read.exchanges, "gradlane", "fp32"), nullptr);
  const MeasuredExchange* const gloo = find_exchange(read.exchanges, "gloo", "fp32");
  ASSERT_NE(gloo, nullptr);
  ASSERT_EQ(gloo->points.size(), 2u);
  EXPECT_EQ(gloo->points[1].bytes, 4194304);
  EXPECT_DOUBLE_EQ(gloo->points[1].seconds, 0.02);
  EXPECT_DOUBLE_EQ(gloo->points[0].busy, 400e-6);
}

// Older files have neither checks nor strategies. The spread of lambda's repetitions is written as a YAML comment,
// which is not read back.
TEST(CalibrationFile, OptionalKeys) {
  Calibration older = measured();
  older.checks = {};
  older.strategies.clear();
  older.exchanges.clear();
  older.cores = 0;
  older.lambda_least = 1;
  older.lambda_most = 1.25;
  const std::string text = calibration_text(older);
  EXPECT_NE(text.find("# lambda: of its repetitions the least 1, the most 1.25\n"), text.npos) << text;
  EXPECT_EQ(text.find("checks:"), text.npos);
  const Calibration read = parse_calibration(text, "file");
  EXPECT_EQ(read.checks.times_as_long, 0);
  EXPECT_TRUE(read.strategies.empty());
}

TEST(CalibrationFile, SaysWhatIsWrong) {
  const std::string text = calibration_text(measured());
  EXPECT_EQ(fault_of(text, "calibration: 1", "calibration: 2"),
            "file: is a calibration of version '2', but this program reads version 1: measure again with gradlane plan "
            "--calibrate");
  EXPECT_NE(fault_of(text, "lanes: 2", "lanes: none").find("lanes: 'none' is not a whole number"), std::string::npos);
  EXPECT_NE(fault_of(text, "lambda: 1.05", "lambda: 0.5").find("allowed: 1 to 1000"), std::string::npos);
  EXPECT_NE(fault_of(text, "lambda:", "lamda:").find("did you mean 'lambda'"), std::string::npos);
  EXPECT_NE(fault_of(text, "made: 2026-", "made: 2026/").find("is not a time"), std::string::npos);
  EXPECT_NE(fault_of(text, "codec: 'fixed:10'", "codec: 'fixed:99'").find("codecs[4].codec"), std::string::npos);
  EXPECT_NE(fault_of(text, "codec: 'fp16'", "codec: 'bf16'").find("given twice"), std::string::npos);
  EXPECT_NE(fault_of(text, "codec: 'raw'", "codec: 'tbq:6'").find("codec raw is missing"), std::string::npos);
  EXPECT_NE(fault_of(text, "gbps: 10}", "gbps: 0}").find("links[0].gbps"), std::string::npos);
  EXPECT_NE(fault_of(text, "'aggregator:0,stream'", "square").find("strategies[1]"), std::string::npos);
  EXPECT_NE(fault_of(text, "bytes: 4194304", "bytes: 65536").find("bytes must be more"), std::string::npos);
  EXPECT_NE(fault_of(text, "speedup: 0.8", "speedup: 0").find("checks.speedup"), std::string::npos);
  EXPECT_THROW((void)parse_calibration("", "file"), SetupError);
  EXPECT_THROW((void)parse_calibration("[1]", "file"), SetupError);
}

TEST(CalibrationFile, Times) {
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_text(1795452265), "2026-11-23T16:44:25Z");
  EXPECT_EQ(utc_seconds("2026-11-23T16:44:25Z"), 1795452265U);
  EXPECT_EQ(utc_seconds("2024-02-29T00:00:00Z"), 1709164800U);
  for (const char* const text :
       {"2025-02-29T00:00:00Z", "2026-11-23", "2026-11-23T16:44:25", "", "2026-11-23T16:44:25Zx"}) {
    EXPECT_FALSE(utc_seconds(text)) << text;
  }
}

}  // namespace
}  // namespace gradlane::test::calibration_file_test
