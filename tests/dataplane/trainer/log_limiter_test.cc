// log_limiter_test.cc - floods of lines in virtual time
#include "dataplane/trainer/log_limiter.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace gradlane::test::log_limiter_test {
namespace {

using Level = LogLimiter::Level;
constexpr Level kInfo = Level::info;
constexpr Level kWarn = Level::warn;

class LogLimiterTest : public testing::Test {
 protected:
  std::vector<std::pair<Level, std::string>> lines_;
  LogLimiter log_{[this](Level level, const std::string& text) { lines_.emplace_back(level, text); }};
};

TEST_F(LogLimiterTest, LinesThatDifferInNumbersAreOfOneKind) {
  log_.step(kSecond);
  for (unsigned i = 0; i < LogLimiter::kBurst; ++i) log_.log(kWarn, "pid " + std::to_string(i) + " left");
  EXPECT_EQ(lines_.size(), LogLimiter::kBurst);
  EXPECT_EQ(lines_.back(), std::pair(kWarn, std::string("pid 63 left")));
  log_.log(kWarn, "pid 1000 left");
  log_.log(kWarn, "pid 1001 left");
  EXPECT_EQ(lines_.size(), LogLimiter::kBurst);
  log_.log(kInfo, "pid 1001 came");
  EXPECT_EQ(lines_.back().second, "pid 1001 came");
  log_.step(kSecond + LogLimiter::kTold - 1);
  EXPECT_EQ(lines_.size(), LogLimiter::kBurst + 1);
  log_.step(kSecond + LogLimiter::kTold);
  EXPECT_EQ(lines_.back(), std::pair(kWarn, std::string("2 more lines like this in the last 60 s: pid 1001 left")));
  EXPECT_EQ(lines_.size(), LogLimiter::kBurst + 2);
  log_.step(kSecond + 5 * LogLimiter::kTold);
  EXPECT_EQ(lines_.size(), LogLimiter::kBurst + 2);
}

// In the long run a flood of one kind has a line every kRefill, and one that counts the others every kTold.
TEST_F(LogLimiterTest, Flood) {
  constexpr unsigned kMinutes = 10;
  for (Nanos now = kSecond; now <= kSecond + kMinutes * 60 * kSecond; now += 100 * kMillisecond) {
    log_.step(now);
    log_.log(kInfo, "noise " + std::to_string(now));
  }
  EXPECT_EQ(lines_.size(), LogLimiter::kBurst + kMinutes * 6 + kMinutes - 1);
}

TEST_F(LogLimiterTest, QuietTimeAllowsABurstAgain) {
  log_.step(kSecond);
  for (unsigned i = 0; i < LogLimiter::kBurst; ++i) log_.log(kInfo, "a");
  log_.step(kSecond + LogLimiter::kBurst * LogLimiter::kRefill);
  for (unsigned i = 0; i < 2 * LogLimiter::kBurst; ++i) log_.log(kInfo, "a");
  EXPECT_EQ(lines_.size(), 2 * LogLimiter::kBurst);
}

// A trainer that invents kinds is limited, too.
TEST_F(LogLimiterTest, ManyKinds) {
  log_.step(kSecond);
  std::string kind;
  for (unsigned i = 0; i < 10'000; ++i) {
    kind += 'x';
    log_.log(kInfo, kind);
  }
  EXPECT_EQ(lines_.size(), LogLimiter::kMostKinds - 1 + LogLimiter::kBurst);
}

TEST_F(LogLimiterTest, NamedKinds) {
  log_.step(kSecond);
  std::string text;
  for (unsigned i = 0; i < 2 * LogLimiter::kBurst; ++i) log_.log(kInfo, "choices", text += 'y');
  EXPECT_EQ(lines_.size(), LogLimiter::kBurst);
}

}  // namespace
}  // namespace gradlane::test::log_limiter_test
