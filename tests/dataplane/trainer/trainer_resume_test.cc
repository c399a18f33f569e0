// trainer_resume_test.cc - ranks that have lost count of each other's operations count from the start again
#include <gtest/gtest.h>

#include <vector>

#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test::trainer_resume_test {
namespace {

constexpr Task kTask{.count = 30'000};

void resume(Trainers& trainers, unsigned rank) { trainers[rank].resume(); }

// One rank has submitted more operations than the others. It resumes first, last, or in between.
TEST(Resume, AfterOneRankHasGoneAhead) {
  for (const unsigned trainers_per_node : {1U, 2U}) {
    for (unsigned first = 0; first < 3; ++first) {
      SCOPED_TRACE(first);
      Trainers trainers({.nodes = 3, .lanes = 2, .trainers = trainers_per_node});
      const unsigned ranks = trainers.world.ranks();
      trainers.run(kTask);
      const uint64_t ahead = trainers.submit(1, kTask);
      trainers.world.run_for(kMillisecond);
      for (unsigned i = 0; i < ranks; ++i) {
        resume(trainers, (first + i) % ranks);
        trainers.world.run_for(i * 300 * kMicrosecond);
      }
      ASSERT_TRUE(trainers.world.run_until([&] { return trainers[1].over(ahead).has_value(); }));
      EXPECT_NE(trainers[1].over(ahead)->failed, 0U);
      trainers.world.run_for(kMillisecond);
      trainers.run(kTask);
      trainers.run(kTask);
    }
  }
}

// All ranks try until an operation succeeds, and resume at once after a failure. They succeed, however late one of them
// is.
TEST(Resume, AgainAndAgainComesToAnEnd) {
  for (Nanos late = 0; late < 2 * kMillisecond; late += 100 * kMicrosecond) {
    Trainers trainers({.nodes = 3, .lanes = 2});
    trainers.run(kTask);
    std::vector<uint64_t> cookies(3);
    cookies[1] = trainers.submit(1, kTask);  // the others do not know of it
    trainers.world.run_for(late);
    cookies[0] = trainers.submit(0, {.count = 10'000});
    cookies[2] = trainers.submit(2, {.count = 10'000});
    std::vector<bool> done(3, false);
    int failures = 0;
    const auto all_done = [&] {
      for (unsigned rank = 0; rank < 3; ++rank) {
        const auto end = done[rank] ? std::nullopt : trainers[rank].over(cookies[rank]);
        if (!end) continue;
        if (end->failed == 0) {
          done[rank] = true;
          continue;
        }
        ++failures;
        resume(trainers, rank);
        cookies[rank] = trainers.submit(rank, {.count = 20'000});
      }
      return done[0] && done[1] && done[2];
    };
    EXPECT_TRUE(trainers.world.run_until(all_done, 150 * kMillisecond)) << late;
    EXPECT_GE(failures, 3);
    EXPECT_LE(failures, 12);
  }
}

TEST(Resume, WithNothingInFlightHarmsNobody) {
  Trainers trainers({.nodes = 2, .lanes = 2});
  resume(trainers, 0);
  const uint64_t waiting = trainers.submit(1, kTask);
  trainers.world.run_for(kMillisecond);
  resume(trainers, 0);  // a rank that has submitted nothing need not resume
  const uint64_t late = trainers.submit(0, kTask);
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[0].over(late) && trainers[1].over(waiting); }));
  EXPECT_EQ(trainers[0].over(late)->failed, 0U);
  EXPECT_EQ(trainers[1].over(waiting)->failed, 0U);
}

}  // namespace
}  // namespace gradlane::test::trainer_resume_test
