// trainer_unaware_test.cc - submissions of trainers that do not know yet that a generation has ended
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/dataplane/trainer/trainer_values.h"
#include "tests/thorough.h"

namespace gradlane::test::trainer_unaware_test {
namespace {

constexpr Nanos kSoon = 10 * kMillisecond;  // much less than operation_timeout
constexpr Task kTask{.count = 30'000};

// Expects that the operation fails soon, with a text that names this rank.
void expect_failed(Trainers& trainers, unsigned rank, uint64_t cookie, const std::string& named, bool ended = true) {
  SCOPED_TRACE("rank " + std::to_string(rank));
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[rank].over(cookie).has_value(); }, kSoon));
  const Outcome end = *trainers[rank].over(cookie);
  EXPECT_NE(end.failed, 0U);
  EXPECT_NE(end.text.find(named), std::string::npos) << end.text;
  EXPECT_EQ(end.tells_end, ended);
}

TEST(Unaware, WithOperationsInFlight) {
  for (const unsigned lanes : {1U, 2U}) {
    Trainers trainers({.nodes = 3, .lanes = lanes});
    trainers.run(kTask);
    std::vector<uint64_t> first(2), later(2);
    for (const unsigned rank : {0U, 1U}) first[rank] = trainers.submit(rank, kTask);
    trainers.world.run_for(kMillisecond);
    trainers[2].detach();
    trainers.world.run_for(kMillisecond);  // all lanes learn of it
    later[0] = trainers.submit(0, kTask);
    later[1] = trainers.submit(0, kTask);
    for (const uint64_t cookie : later) expect_failed(trainers, 0, cookie, "rank 2");
    for (const unsigned rank : {0U, 1U}) expect_failed(trainers, rank, first[rank], "rank 2");
    trainers.come(2);
    trainers.run(kTask);  // works, although nobody has resumed
  }
}

// Rank 1 has its results, so nothing in flight can report the end to it.
TEST(Unaware, WithNothingInFlight) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  trainers.run(kTask);
  const uint64_t begun = trainers.submit(0, kTask);
  trainers.world.run_for(kMillisecond);
  trainers[2].detach();
  expect_failed(trainers, 0, begun, "rank 2");
  expect_failed(trainers, 1, trainers.submit(1, kTask), "rank 2");
  trainers.come(2);
  trainers.run(kTask);
  trainers.run(kTask);
}

TEST(Unaware, WhatTheExchangeHadNoRoomFor) {
  Trainers trainers({.nodes = 2, .lanes = 2, .operations = 1});
  trainers.run(kTask);
  std::vector<uint64_t> cookies;
  for (int i = 0; i < 4; ++i) cookies.push_back(trainers.submit(0, kTask));
  trainers.world.run_for(kMillisecond);
  trainers[1].detach();
  for (const uint64_t cookie : cookies) expect_failed(trainers, 0, cookie, "rank 1");
  trainers.come(1);
  trainers.run(kTask);
}

TEST(Unaware, ResumeSaysThatItKnows) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  trainers.run(kTask);
  trainers[2].detach();
  trainers.come(2);
  trainers.world.run_for(kMillisecond);
  for (const unsigned rank : {0U, 1U}) trainers[rank].resume();
  trainers.run(kTask);
}

// A rank that has submitted nothing yet, or nothing after it resumed, need not learn of the end of the generation.
TEST(Unaware, NotWhoHasNotBegun) {
  Trainers trainers({.nodes = 2, .lanes = 2});
  const uint64_t begun = trainers.submit(0, kTask);
  trainers.world.run_for(kMillisecond);
  trainers[0].resume();
  trainers.world.run_for(kMillisecond);
  expect_failed(trainers, 0, begun, "rank 0");
  trainers.run(kTask);
}

// A cancel fails only one operation, and operation numbers continue. Submissions after it are valid as before.
TEST(Unaware, NotAfterACancel) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  trainers.run(kTask);
  const uint64_t mine = trainers.submit(0, kTask);
  trainers.world.run_for(kMillisecond);
  trainers[0].cancel(mine);
  trainers.world.run_for(kMillisecond);
  std::vector<uint64_t> next = {trainers.submit(0, kTask), 0, 0};
  for (const unsigned rank : {1U, 2U}) {
    expect_failed(trainers, rank, trainers.submit(rank, kTask), "rank 0", false);
    next[rank] = trainers.submit(rank, kTask);
  }
  for (const Outcome& end : trainers.outcomes_of(next, kSoon)) EXPECT_EQ(end.failed, 0U) << end.text;
}

// A trainer that ends a generation by resuming knows of that end. Failures of its later submissions do not report it.
TEST(Unaware, WhatResumingEndsIsNotToldOf) {
  Trainers trainers({.nodes = 2, .lanes = 2});
  trainers.run(kTask);
  const uint64_t begun = trainers.submit(0, kTask);
  trainers.world.run_for(kMillisecond);
  trainers[0].resume();
  expect_failed(trainers, 0, begun, "rank 0");
  expect_failed(trainers, 1, trainers.submit(1, kTask), "rank 0");
  trainers.run(kTask);
  const uint64_t mine = trainers.submit(0, kTask);
  trainers.world.run_for(kMillisecond);
  trainers[0].cancel(mine);
  expect_failed(trainers, 0, mine, "rank 0", false);
  expect_failed(trainers, 1, trainers.submit(1, kTask), "rank 0", false);
}

// Each trainer of a node learns of the end separately. They begin the next operation together.
TEST(Unaware, TrainersOfOneNode) {
  for (const unsigned ahead : {0U, 1U}) {
    Trainers trainers({.nodes = 2, .lanes = 2, .trainers = 2});
    trainers.run(kTask);
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 3; ++rank) cookies.push_back(trainers.submit(rank, kTask));
    const uint64_t more = trainers.submit(ahead, kTask);  // the other trainer of its node has not submitted it
    trainers.world.run_for(kMillisecond);
    trainers[3].detach();
    trainers.world.run_for(kMillisecond);
    const uint64_t unaware = trainers.submit(0, kTask);
    expect_failed(trainers, 0, unaware, "rank 1");
    expect_failed(trainers, ahead, more, "rank 1");
    for (const unsigned rank : {0U, 1U}) expect_failed(trainers, rank, cookies[rank], "rank 1");
    expect_failed(trainers, 2, cookies[2], "rank 3, a trainer of this node, has left");
    trainers.come(3);
    trainers.run(kTask);
  }
}

// ---- Pipelines

// nodes, lanes, trainers of a node
class Pipelines : public testing::TestWithParam<std::tuple<unsigned, unsigned, unsigned>> {
 protected:
  static constexpr size_t kAhead = 3;

  // Submits and waits, in order, until an operation fails. Returns true if one has failed and all others are over.
  static bool live(Trainers& trainers, unsigned rank, std::deque<uint64_t>& pending, bool& told) {
    while (!pending.empty()) {
      const auto end = trainers[rank].over(pending.front());
      if (!end) break;
      pending.pop_front();
      told |= end->failed != 0;
      // With local reduction, the error for trainers of the same node may have no rank.
      if (end->failed != 0) {
        EXPECT_TRUE(end->text.find("rank ") != std::string::npos || end->text.find("this node") != std::string::npos)
            << end->text;
      }
    }
    while (!told && pending.size() < kAhead) pending.push_back(trainers.submit(rank, {.count = 5'000}));
    return told && pending.empty();
  }
};

TEST_P(Pipelines, AreOverSoonAfterATrainerHasGone) {
  const auto [nodes, lanes, of_each] = GetParam();
  const unsigned ranks = nodes * of_each;
  std::mt19937 random(ranks);
  Trainers trainers({.nodes = nodes, .lanes = lanes, .trainers = of_each});
  trainers.run({.count = 1000});  // makes the ring ready: before that, ranks wait for a trainer that has left
  for (int round = 0; round < rounds(60); ++round) {
    std::vector<std::deque<uint64_t>> pending(ranks);
    std::deque<bool> told(ranks, false);
    const auto victim = static_cast<unsigned>(random() % ranks);
    const Nanos dies = trainers.world.now() + random() % (300 * kMicrosecond);
    const auto until = [&] {
      for (unsigned rank = 0; rank < ranks; ++rank) (void)live(trainers, rank, pending[rank], told[rank]);
      return trainers.world.now() >= dies;
    };
    ASSERT_TRUE(trainers.world.run_until(until));
    trainers[victim].begin_detach();
    const auto all_over = [&] {
      bool so = trainers[victim].done();
      for (unsigned rank = 0; rank < ranks; ++rank) {
        if (rank != victim) so &= live(trainers, rank, pending[rank], told[rank]);
      }
      return so;
    };
    ASSERT_TRUE(trainers.world.run_until(all_over, kSoon)) << "round " << round;
    trainers.come(victim);
    for (unsigned rank = 0; rank < ranks; ++rank) trainers[rank].resume();
    trainers.world.run_for(kMillisecond);
    trainers.run({.count = 1000});
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Pipelines,
                         testing::Values(std::tuple{2, 1, 1}, std::tuple{4, 1, 1}, std::tuple{3, 2, 1},
                                         std::tuple{2, 1, 2}, std::tuple{3, 2, 3}));

}  // namespace
}  // namespace gradlane::test::trainer_unaware_test
