// trainer_cancel_test.cc - operations that are cancelled, and segments that are removed, at any point of their life
#include <gtest/gtest.h>

#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test::trainer_cancel_test {
namespace {

constexpr Task kTask{.count = 40'000};

// Operations are cancelled before the ring is ready, while they wait for a free slot of the exchange or for other
// ranks, in the middle, and when they are over.
TEST(Cancel, InEachState) {
  Trainers trainers({.nodes = 3, .lanes = 2, .operations = 1});
  for (Nanos after = 0; after < 400 * kMicrosecond; after += 7 * kMicrosecond) {
    std::vector<uint64_t> first, second;
    for (unsigned rank = 0; rank < 3; ++rank) {
      first.push_back(trainers.submit(rank, kTask));
      Task task = kTask;
      task.offset = 160'000;
      second.push_back(trainers.submit(rank, task));
    }
    trainers.world.run_for(after);
    const bool early = after < 30 * kMicrosecond;
    trainers[1].cancel(early ? second[1] : first[1]);
    const auto cancelled = trainers.outcomes_of(early ? second : first);
    const auto other = trainers.outcomes_of(early ? first : second);
    for (unsigned rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(other[rank].failed, 0U) << other[rank].text;
      if (early) {
        EXPECT_NE(cancelled[rank].failed, 0U);
      }
      if (cancelled[rank].failed != 0) {
        EXPECT_NE(cancelled[rank].text.find("rank 1"), std::string::npos);
      }
    }
  }
  trainers.run(kTask);
}

TEST(Cancel, WhatOthersHaveNotSubmitted) {
  Trainers trainers({.nodes = 2, .lanes = 2});
  const uint64_t mine = trainers.submit(0, kTask);
  trainers.world.run_for(kMillisecond);
  trainers[0].cancel(mine);
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[0].over(mine).has_value(); }, 5 * kMillisecond));
  EXPECT_EQ(trainers[0].over(mine)->failed, 2U);
  const uint64_t theirs = trainers.submit(1, kTask);
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[1].over(theirs).has_value(); }, 5 * kMillisecond));
  EXPECT_EQ(trainers[1].over(theirs)->failed, 2U);
  trainers.run(kTask);
}

TEST(Cancel, UnknownCookiesMeanNothing) {
  Trainers trainers({.nodes = 2, .lanes = 2});
  const uint64_t mine = trainers.submit(0, kTask);
  for (uint64_t cookie = 1000; cookie < 1030; ++cookie) trainers[0].cancel(cookie);
  trainers[1].cancel(mine);  // a cookie of another trainer
  for (const Outcome& end : trainers.outcomes_of({mine, trainers.submit(1, kTask)})) EXPECT_EQ(end.failed, 0U);
  trainers[0].cancel(mine);  // the operation is over
  trainers.run(kTask);
  EXPECT_EQ(trainers[0].completions(), 4U) << "a cancel has no completion";
}

// A cancel gets through even if as many operations are in flight as possible.
TEST(Cancel, WhenTheRingsAreFull) {
  Trainers trainers({.nodes = 2});
  std::vector<uint64_t> mine;
  for (unsigned i = 0; i < GL_SLOTS; ++i) mine.push_back(trainers.submit(0, {.count = 8}));
  trainers.world.run_for(20 * kMillisecond);
  trainers[0].cancel(mine[0]);
  EXPECT_TRUE(trainers.world.run_until([&] { return trainers[0].over(mine[0]).has_value(); }, 5 * kMillisecond));
}

// Completions that nobody reads hold submissions back. Nothing is lost.
TEST(Cancel, NobodyReadsCompletions) {
  Trainers trainers({.nodes = 1});
  std::vector<uint64_t> mine;
  for (unsigned i = 0; i < GL_SLOTS; ++i) mine.push_back(trainers.submit(0, {.count = 8}));
  trainers.world.run_for(5 * kMillisecond);
  for (unsigned i = 0; i < GL_SLOTS; ++i) mine.push_back(trainers.submit(0, {.count = 8}));
  trainers.world.run_for(5 * kMillisecond);
  EXPECT_EQ(trainers[0].lane(0).complete_tail, GL_SLOTS);
  EXPECT_TRUE(trainers.world.ops(0, 0).fall_asleep()) << "who does not read must not keep the worker awake";
  trainers.world.ops(0, 0).wake_up();
  for (const uint64_t cookie : mine) {
    ASSERT_TRUE(trainers.world.run_until([&] { return trainers[0].over(cookie).has_value(); }));
    EXPECT_EQ(trainers[0].over(cookie)->failed, 0U);
  }
}

// The segment is unmapped as soon as the command is done. No lane may touch it after that.
TEST(RemoveSegment, AtAnyTime) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  for (Nanos after = 0; after < 500 * kMicrosecond; after += 11 * kMicrosecond) {
    for (const bool residual : {false, true}) {
      std::vector<uint64_t> cookies;
      for (unsigned rank = 0; rank < 3; ++rank) {
        trainers[rank].add_segment(3, 160'000);
        gl_submission submission = kTask.submission();
        if (residual) {
          submission.flags = GL_FLAG_RESIDUAL;
          submission.residual_segment = 3;
        } else {
          submission.segment = 3;
        }
        cookies.push_back(trainers[rank].submit(submission));
      }
      trainers.world.step();  // lanes take the submissions, which would otherwise name a missing segment
      trainers.world.run_for(after);
      trainers[2].remove_segment(3);
      for (const Outcome& end : trainers.outcomes_of(cookies)) {
        if (end.failed != 0) {
          EXPECT_NE(end.text.find("rank 2"), std::string::npos) << end.text;
        }
      }
      trainers[0].remove_segment(3);
      trainers[1].remove_segment(3);
    }
  }
  trainers.run(kTask);
}

// An operation that uses another segment goes on.
TEST(RemoveSegment, LeavesOthersAlone) {
  Trainers trainers({.nodes = 2});
  trainers[0].add_segment(1, 4096);
  const uint64_t mine = trainers.submit(0, kTask);
  trainers.world.run_for(kMillisecond);
  trainers[0].remove_segment(1);
  for (const Outcome& end : trainers.outcomes_of({mine, trainers.submit(1, kTask)})) EXPECT_EQ(end.failed, 0U);
}

TEST(Close, FailsEverythingAndSaysWho) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  trainers.run(kTask);
  std::vector<uint64_t> cookies;
  for (unsigned rank = 0; rank < 2; ++rank) cookies.push_back(trainers.submit(rank, kTask));
  trainers.world.run_for(kMillisecond);
  trainers[0].close();
  for (const Outcome& end : trainers.outcomes_of(cookies, 20 * kMillisecond)) {
    EXPECT_EQ(end.failed, 2U);
    EXPECT_NE(end.text.find("rank 0"), std::string::npos) << end.text;
  }
}

}  // namespace
}  // namespace gradlane::test::trainer_cancel_test
