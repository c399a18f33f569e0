// failure_cause_test.cc - causes of failed operations, as numbers for programs
#include "dataplane/trainer/failure_cause.h"

#include <gtest/gtest.h>

namespace gradlane::test {
namespace {

TEST(FailureCause, OfWhatTheExchangeSays) {
  const struct {
    FailureCode code;
    gradlane_cause cause;
  } rows[] = {
      {FailureCode::kSilent, GRADLANE_CAUSE_SILENT},          {FailureCode::kRestarted, GRADLANE_CAUSE_RESTARTED},
      {FailureCode::kRefused, GRADLANE_CAUSE_CONFIGURED},     {FailureCode::kMismatch, GRADLANE_CAUSE_MISMATCH},
      {FailureCode::kAborted, GRADLANE_CAUSE_CANCELLED},      {FailureCode::kNoRing, GRADLANE_CAUSE_NO_RING},
      {FailureCode::kStuck, GRADLANE_CAUSE_TIMEOUT},          {FailureCode::kClosed, GRADLANE_CAUSE_NODE_LEFT},
      {FailureCode::kDuplicateRank, GRADLANE_CAUSE_DUPLICATE}};
  for (const auto& row : rows) {
    const Failure failure = {.code = row.code, .rank = 3};
    EXPECT_EQ(cause_of(failure).cause, row.cause);
    EXPECT_EQ(std::string(cause_of(failure).text.view()), failure_text(failure));
    EXPECT_FALSE(cause_of(failure).empty());
  }
  EXPECT_EQ(cause_of({.code = FailureCode::kMismatch, .rank = 3, .field = Field::kTag}).cause, GRADLANE_CAUSE_TAG);
  EXPECT_TRUE(FailureCause{}.empty());
}

TEST(FailureCause, OfThisNode) {
  EXPECT_EQ(std::string(trainer_gone(5).text.view()), "rank 5, a trainer of this node, has left");
  EXPECT_EQ(std::string(trainer_gone(std::nullopt).text.view()), "a trainer of this node has left");
  EXPECT_EQ(trainer_gone(5).cause, GRADLANE_CAUSE_TRAINER_GONE);
  EXPECT_EQ(std::string(trainer_replaced(5).text.view()),
            "a new trainer has replaced rank 5, a trainer of this node that has left");
  EXPECT_EQ(std::string(trainer_resumed(5).text.view()), "rank 5 has called gradlane_resume");
  EXPECT_EQ(std::string(cancelled_by(2).text.view()), "rank 2 has cancelled it");
  EXPECT_EQ(std::string(daemon_ends(nullptr).text.view()), "the daemon is shutting down");
  EXPECT_EQ(std::string(daemon_ends("port e1 has gone").text.view()), "port e1 has gone");
  EXPECT_EQ(daemon_ends(nullptr).cause, GRADLANE_CAUSE_NODE_LEFT);
}

}  // namespace
}  // namespace gradlane::test
