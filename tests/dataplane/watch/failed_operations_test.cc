// failed_operations_test.cc - counts of failed operations in, lines of the log out
#include "dataplane/watch/failed_operations.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradlane::test::failed_operations_test {
namespace {

using Level = RingLine::Level;

constexpr Failure kSilent{.code = FailureCode::kSilent, .rank = 1};
constexpr Failure kMismatch{.code = FailureCode::kMismatch, .rank = 2, .field = Field::kCount, .ours = 1, .theirs = 2};
constexpr const char* kSilentText =
    "rank 1 has been silent for too long: it has died, hangs, or cannot be reached; gradlane check tests the "
    "path to it";

class FailureLogTest : public testing::Test {
 protected:
  // Calls look() 100 ms after the previous call. `all` has the failures of each rank and lane until now. Returns the
  // lines of the log.
  std::vector<std::string> look(std::vector<FailedOperations> all) {
    now_ += kSecond / 10;
    std::vector<std::string> texts;
    for (const RingLine& line : log_.look(0, all, now_)) {
      EXPECT_EQ(line.level, level_);
      texts.push_back(line.text);
    }
    return texts;
  }
  FailureLog log_;
  Nanos now_ = kSecond;
  Level level_ = Level::kError;
};

TEST_F(FailureLogTest, ALineForEachCause) {
  EXPECT_TRUE(look({{0, 0, {}}}).empty());
  EXPECT_EQ(log_.failed_at(), 0U);
  EXPECT_EQ(look({{0, 3, kSilent}}),
            (std::vector<std::string>{std::string("node 0: 3 operations failed: ") + kSilentText}));
  EXPECT_EQ(log_.failed_at(), now_);
  EXPECT_TRUE(look({{0, 3, kSilent}}).empty());
  EXPECT_EQ(
      look({{0, 4, kMismatch}}),
      (std::vector<std::string>{"node 0: 1 operation failed: rank 2 runs another operation: count: 1 on the rank "
                                "that found this, 2 on rank 2; all ranks must call the same operations in the same "
                                "order"}));
}

// Several causes occur between two looks.
TEST_F(FailureLogTest, SeveralCausesAtOnce) {
  const std::string silent = kSilentText;
  const PastFailures before = {PastFailure{kSilent, 5}, {kMismatch, 3}};
  const auto lines = look({{0, 6, kMismatch, before}});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].starts_with("node 0: 4 operations failed: rank 2 runs another operation: ")) << lines[0];
  EXPECT_EQ(lines[1], "node 0: 2 operations failed: " + silent);
  // Failures that an earlier look has seen do not count again.
  EXPECT_TRUE(look({{0, 6, kMismatch, before}}).empty());
  const Failure closed{.code = FailureCode::kAborted, .rank = 1};
  level_ = Level::kWarning;
  EXPECT_EQ(look({{0, 8, closed, {PastFailure{kMismatch, 6}, {kSilent, 5}, {kMismatch, 3}}}}),
            (std::vector<std::string>{"node 0: 2 operations failed: cancelled on rank 1"}));
}

// The count is read before the causes. A new cause that is not in the count yet gets none of the operations of the
// cause before.
TEST_F(FailureLogTest, ACauseThatIsNewerThanTheCount) {
  const std::string silent = kSilentText;
  EXPECT_EQ(look({{0, 3, kMismatch, {PastFailure{kSilent, 3}}}}),
            (std::vector<std::string>{"node 0: 3 operations failed: " + silent}));
}

TEST_F(FailureLogTest, AFloodIsCounted) {
  uint64_t count = 1;
  EXPECT_EQ(look({{0, count, kSilent}}).size(), 1U);
  std::vector<std::string> lines;
  for (int i = 0; i < 250; ++i) {
    for (const std::string& line : look({{0, ++count, kSilent}})) lines.push_back(line);
  }
  EXPECT_EQ(lines, (std::vector<std::string>{std::string("node 0: 100 more operations failed: ") + kSilentText,
                                             std::string("node 0: 100 more operations failed: ") + kSilentText}));
}

TEST_F(FailureLogTest, LanesCountOnceAndRanksEach) {
  EXPECT_EQ(look({{0, 5, kSilent}, {1, 2, kSilent}, {0, 4, kSilent}, {1, 2, kSilent}}),
            (std::vector<std::string>{std::string("node 0: 7 operations failed: ") + kSilentText}));
}

TEST_F(FailureLogTest, WhatIsWantedIsAWarning) {
  level_ = Level::kWarning;
  EXPECT_EQ(look({{0, 1, {.code = FailureCode::kClosed, .rank = 1}}}),
            (std::vector<std::string>{"node 0: 1 operation failed: rank 1 has left, or was shut down"}));
}

}  // namespace
}  // namespace gradlane::test::failed_operations_test
