// report_test.cc - a line of `gradlane bench codec` keeps its width, whatever was measured
#include "tools/bench/report.h"

#include <gtest/gtest.h>

#include <string>

namespace gradlane::test::report_test {
namespace {

std::string line_of(double speed, double share) {
  const BenchOp op = {"encode", "encode", nullptr, false, nullptr};
  const BenchRow row = {"raw", "scalar", "encode", "laplace-1e-3", 1408, speed, speed / share, share, 1, 4, 0};
  testing::internal::CaptureStdout();
  print_table_line({&op, 1}, {&row, 1});
  return testing::internal::GetCapturedStdout();
}

TEST(Report, SharesOfMemcpyHaveAtMostFourCharacters) {
  const std::string head = "raw                    scalar  1.00       0 ";
  EXPECT_EQ(line_of(0.001, 0.0004), head + "0.00 0.0%\n");
  EXPECT_EQ(line_of(2.8, 0.0994), head + "2.80 9.9%\n");
  EXPECT_EQ(line_of(28, 1.0), head + "28.0 100%\n");
  EXPECT_EQ(line_of(28, 9.99), head + "28.0 999%\n");
  EXPECT_EQ(line_of(28, 9.996), head + "28.0  10x\n");
  EXPECT_EQ(line_of(28, 60.56), head + "28.0  61x\n");  // something interrupted memcpy
}

}  // namespace
}  // namespace gradlane::test::report_test
