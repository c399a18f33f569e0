// checks_test.cc - checks whether the figures of a calibration fit what was measured right after it
#include "tools/calibrate/checks.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradlane::test::checks_test {
namespace {

constexpr size_t kKib = 1024;

TEST(Checks, AreOfTheOneThatIsFurthestOff) {
  // Short operations are not checked, however far off they are.
  const std::vector<CheckedTime> checked = {{"raw", 4 * kKib, 9, 1},         {"raw", 64 * kKib, 1.5, 1},
                                            {"raw", 1024 * kKib, 12, 10},    {"fixed:10", 4 * kKib, 1, 9},
                                            {"fixed:10", 64 * kKib, 1, 1.2}, {"fixed:10", 1024 * kKib, 15, 5}};
  const CalibrationChecks checks = checks_of(checked);
  EXPECT_DOUBLE_EQ(checks.times_as_long, 3);
  EXPECT_DOUBLE_EQ(checks.speedup, 0.8);
  EXPECT_EQ(misfit_text(checks),
            "these figures do not fit this ring: the predicted time is 3.0 times too low; when measured, compressing "
            "was 0.80 times as fast as raw");
}

TEST(Checks, FitWithinTwo) {
  EXPECT_EQ(misfit_text({1.9, 1}), "");
  EXPECT_EQ(misfit_text({0.6, 1}), "");
  EXPECT_NE(misfit_text({0.4, 2}).find("2.5 times too high; when measured, compressing was 2.00"), std::string::npos);
  EXPECT_EQ(misfit_text({}), "");
  EXPECT_EQ(checks_of({}).times_as_long, 0);
}

}  // namespace
}  // namespace gradlane::test::checks_test
