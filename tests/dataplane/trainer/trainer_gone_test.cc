// trainer_gone_test.cc - trainers that come and go, between operations or during one, and the other ranks meanwhile
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/dataplane/trainer/trainer_values.h"
#include "tests/thorough.h"

namespace gradlane::test::trainer_gone_test {
namespace {

constexpr Nanos kSoon = 10 * kMillisecond;
constexpr Task kTask{.count = 30'000};

void expect_failed(const std::vector<Outcome>& ends, unsigned but, const std::string& named) {
  for (unsigned rank = 0; rank < ends.size(); ++rank) {
    if (rank == but) continue;
    EXPECT_NE(ends[rank].failed, 0U) << "rank " << rank;
    EXPECT_NE(ends[rank].text.find(named), std::string::npos) << "rank " << rank << ": " << ends[rank].text;
  }
}

// Lets a new trainer take the place of one that has gone. Operation numbers begin at 0 again, so the other ranks
// resume.
void come_again(Trainers& trainers, unsigned rank) {
  trainers.come(rank);
  trainers.world.run_for(kMillisecond);
  for (unsigned other = 0; other < trainers.world.ranks(); ++other) {
    if (other != rank) trainers[other].resume();
  }
}

// Returns the outcomes on all ranks except `but`. Each of these ranks has submitted an operation.
std::vector<Outcome> outcomes_but(Trainers& trainers, unsigned but, const std::vector<uint64_t>& cookies, Nanos time) {
  std::vector<Outcome> ends(cookies.size());
  const auto ended = [&] {
    bool so = true;
    for (unsigned rank = 0; rank < cookies.size(); ++rank) {
      so &= rank == but || trainers[rank].over(cookies[rank]).has_value();
    }
    return so;
  };
  EXPECT_TRUE(trainers.world.run_until(ended, time));
  for (unsigned rank = 0; rank < cookies.size(); ++rank) {
    const auto end = rank == but ? std::nullopt : trainers[rank].over(cookies[rank]);
    if (end) ends[rank] = *end;
  }
  return ends;
}

// A trainer is detached at any time during an operation. Its memory is unmapped as soon as the command is done. Other
// ranks get an error soon, and a new trainer replaces it.
TEST(Gone, InTheMiddleOfAnOperation) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  trainers.run(kTask);
  int failed = 0;
  for (Nanos after = 0; after < 40 * kMicrosecond; after += kMicrosecond) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < 3; ++rank) cookies.push_back(trainers.submit(rank, kTask));
    trainers.world.step();
    trainers.world.run_for(after);
    trainers[1].detach();
    const auto ends = outcomes_but(trainers, 1, cookies, kSoon);
    if (ends[0].failed + ends[2].failed != 0) {  // otherwise it was over before
      expect_failed(ends, 1, "rank 1");
      ++failed;
    }
    come_again(trainers, 1);
    trainers.run(kTask);
  }
  EXPECT_GT(failed, 5);
}

TEST(Gone, BeforeItHasSubmittedWhatOthersHave) {
  Trainers trainers({.nodes = 3, .lanes = 2});
  trainers.run(kTask);
  std::vector<uint64_t> cookies = {trainers.submit(0, kTask), 0, trainers.submit(2, kTask)};
  trainers.world.run_for(kMillisecond);
  trainers[1].detach();
  expect_failed(outcomes_but(trainers, 1, cookies, kSoon), 1, "rank 1");
  come_again(trainers, 1);
  trainers.run(kTask);
}

TEST(Gone, OthersSubmitOneMore) {
  for (unsigned gone = 0; gone < 4; ++gone) {
    Trainers trainers({.nodes = 4, .lanes = 2});
    trainers.run(kTask);
    trainers[gone].detach();
    trainers.world.run_for(kMillisecond);
    std::vector<uint64_t> cookies(4);
    for (unsigned rank = 0; rank < 4; ++rank) {
      if (rank != gone) cookies[rank] = trainers.submit(rank, kTask);
    }
    expect_failed(outcomes_but(trainers, gone, cookies, kSoon), gone, "rank " + std::to_string(gone));
    come_again(trainers, gone);
    trainers.run(kTask);
  }
}

// Lets each rank in `left` submit again `rounds` times, while the trainer `gone` is missing. Each submission must fail
// soon, with an error that names the missing trainer.
void try_in_vain(Trainers& trainers, unsigned gone, const std::vector<unsigned>& left, unsigned rounds) {
  const std::string named = "rank " + std::to_string(gone / trainers.world.config().trainers) + " has left";
  for (unsigned round = 0; round < rounds; ++round) {
    std::vector<uint64_t> cookies(trainers.world.ranks());
    for (const unsigned rank : left) {
      trainers[rank].resume();
      cookies[rank] = trainers.submit(rank, kTask);
    }
    const auto told = [&] {
      return std::ranges::all_of(left, [&](unsigned rank) { return trainers[rank].over(cookies[rank]).has_value(); });
    };
    ASSERT_TRUE(trainers.world.run_until(told, kSoon)) << "round " << round;
    for (const unsigned rank : left) {
      const Outcome end = *trainers[rank].over(cookies[rank]);
      EXPECT_NE(end.failed, 0U) << "round " << round << ", rank " << rank;
      const bool here = rank / trainers.world.config().trainers == gone / trainers.world.config().trainers;
      const std::string own = trainers.world.config().trainers == 1
                                  ? "a trainer of this node has left"
                                  : "rank " + std::to_string(gone) + ", a trainer of this node, has left";
      EXPECT_NE(end.text.find(here ? own : named), std::string::npos) << end.text;
    }
  }
}

TEST(Gone, AndNobodyComesForSomeTime) {
  for (const unsigned of_each : {1U, 2U}) {
    for (const unsigned nodes : {2U, 3U, 4U}) {
      Trainers trainers({.nodes = nodes, .lanes = 2, .trainers = of_each, .operation_timeout = kSecond});
      const unsigned ranks = trainers.world.ranks();
      for (unsigned gone = 0; gone < ranks; gone += 2) {
        SCOPED_TRACE(std::to_string(nodes) + " nodes, " + std::to_string(gone) + " of " + std::to_string(ranks));
        trainers.run(kTask);
        trainers[gone].detach();
        std::vector<unsigned> left;
        for (unsigned rank = 0; rank < ranks; ++rank) {
          if (rank != gone) left.push_back(rank);
        }
        try_in_vain(trainers, gone, left, 5);
        come_again(trainers, gone);
        trainers.run(kTask);
      }
    }
  }
}

// Only one remaining rank tries again, a neighbour of the gone rank or not. It gets the error although the other ranks
// have submitted nothing.
TEST(Gone, OnlyOneTriesAgain) {
  for (unsigned left = 1; left < 4; ++left) {
    Trainers trainers({.nodes = 4, .lanes = 2, .operation_timeout = kSecond});
    trainers.run(kTask);
    trainers[0].detach();
    try_in_vain(trainers, 0, {1, 2, 3}, 1);
    try_in_vain(trainers, 0, {left}, 4);
    come_again(trainers, 0);
    trainers.run(kTask);
  }
}

// Nothing of the gone rank was in flight, so no new generation has begun. The gone rank's daemon learns of the next
// operation from a neighbour that has begun it, on either side.
TEST(Gone, OnlyANeighbourGoesOn) {
  for (const std::string strategy : {"ring", "direct", "aggregator:0"}) {
    for (unsigned gone = 0; gone < 3; ++gone) {
      for (const unsigned left : {(gone + 1) % 3, (gone + 2) % 3}) {
        SCOPED_TRACE(strategy + ", " + std::to_string(gone) + " of 3 has gone, " + std::to_string(left) + " goes on");
        Trainers trainers({.nodes = 3, .lanes = 2, .strategies = find_strategies(strategy)});
        trainers.run(kTask);
        trainers[gone].detach();
        trainers.world.run_for(kMillisecond);
        const uint64_t cookie = trainers.submit(left, kTask);
        ASSERT_TRUE(trainers.world.run_until([&] { return trainers[left].over(cookie).has_value(); }, kSoon));
        EXPECT_EQ(trainers[left].over(cookie)->text, "rank " + std::to_string(gone) + " has left, or was shut down");
        come_again(trainers, gone);
        trainers.run(kTask);
      }
    }
  }
}

// A new trainer replaces the one that has gone, and detaches without having done anything.
TEST(Gone, AndTheNextOneToo) {
  Trainers trainers({.nodes = 3, .lanes = 2, .operation_timeout = kSecond});
  trainers.run(kTask);
  trainers[1].detach();
  try_in_vain(trainers, 1, {0, 2}, 2);
  trainers.come(1);
  trainers[1].detach();
  try_in_vain(trainers, 1, {0, 2}, 2);
  come_again(trainers, 1);
  trainers.run(kTask);
}

// Trainers of the next job do not know that one has gone. They wait for it, as at any start.
TEST(Gone, OthersThatComeAfterItWait) {
  Trainers trainers({.nodes = 3, .lanes = 2, .operation_timeout = kSecond});
  trainers.run(kTask);
  trainers[1].detach();
  try_in_vain(trainers, 1, {0, 2}, 2);
  std::vector<uint64_t> cookies(3);
  for (const unsigned rank : {0U, 2U}) {
    trainers[rank].detach();
    trainers.come(rank);
    cookies[rank] = trainers.submit(rank, kTask);
  }
  trainers.world.run_for(100 * kMillisecond);
  trainers.come(1);
  cookies[1] = trainers.submit(1, kTask);
  for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
}

// A trainer has its result and leaves, while the others still work on theirs.
TEST(Gone, AfterItsLastOperation) {
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kBroadcast}) {
    for (size_t count = 1; count < 30'000; count = count * 3 + 7) {
      Trainers trainers({.nodes = 4, .lanes = 2});
      const Task task{.kind = kind, .count = count, .root = static_cast<unsigned>(count % 4)};
      std::vector<uint64_t> cookies;
      for (unsigned rank = 0; rank < 4; ++rank) cookies.push_back(trainers.submit(rank, task));
      std::vector<bool> left(4);
      const auto all_left = [&] {
        for (unsigned rank = 0; rank < 4; ++rank) {
          if (left[rank]) continue;
          const auto end = trainers[rank].over(cookies[rank]);
          if (!end) continue;
          EXPECT_EQ(end->failed, 0U) << end->text;
          EXPECT_TRUE(right(task, rank, 4, trainers[rank].segment(0)));
          trainers[rank].begin_detach();
          left[rank] = true;
        }
        return std::ranges::all_of(left, [](bool it) { return it; });
      };
      ASSERT_TRUE(trainers.world.run_until(all_left));
    }
  }
}

// The first trainer of the next job may submit before the last one has attached.
TEST(Gone, ANewJobBeginsBeforeAllHaveCome) {
  Trainers trainers({.nodes = 3, .lanes = 2, .operation_timeout = kSecond});
  for (unsigned job = 0; job < 4; ++job) {
    trainers.run(kTask);
    for (unsigned rank = 0; rank < 3; ++rank) trainers[rank].detach();
    trainers.come(0);
    std::vector<uint64_t> cookies = {trainers.submit(0, kTask)};
    for (unsigned rank = 1; rank < 3; ++rank) {
      trainers.world.run_for(job * 10 * kMillisecond);
      trainers.come(rank);
      cookies.push_back(trainers.submit(rank, kTask));
    }
    for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
  }
}

TEST(Gone, WithUnknownSegmentsAndCancelsStillInItsRing) {
  Trainers trainers({.nodes = 2});
  for (int i = 0; i < 40; ++i) {
    trainers[0].submit(submission_of(OpKind::kAllReduce, ElementType::kFloat32, 9));
    trainers[0].cancel(static_cast<uint64_t>(i));
  }
  trainers[0].detach();
  trainers.come(0);
  trainers.run(kTask);
}

// ---- Jobs of random length

class Jobs : public testing::TestWithParam<std::tuple<unsigned, unsigned>> {  // nodes, trainers of each
 protected:
  struct Life {
    unsigned to_do = 0;
    std::optional<uint64_t> cookie;
    Nanos dies = 0;
    bool leaving = false;
    bool gone = false;
  };

  // Runs one step of a trainer's life. Its operations may succeed or fail, but they must end.
  static void live(Trainers& trainers, unsigned rank, Life& it) {
    if (it.gone) return;
    if (it.leaving) {
      it.gone = trainers[rank].done();
      return;
    }
    const bool over = it.cookie && trainers[rank].over(*it.cookie).has_value();
    if (over) it.cookie.reset();
    if (trainers.world.now() >= it.dies || (!it.cookie && it.to_do == 0)) {
      trainers[rank].begin_detach();
      it.leaving = true;
    } else if (!it.cookie) {
      --it.to_do;
      it.cookie = trainers.submit(rank, {.count = it.to_do % 2 == 0 ? size_t{20'000} : size_t{10}});
    }
  }
};

TEST_P(Jobs, AFullOneAlwaysWorksAfterwards) {
  const auto [nodes, of_each] = GetParam();
  const unsigned ranks = nodes * of_each;
  std::mt19937 random(nodes * 100 + of_each);
  Trainers trainers({.nodes = nodes, .lanes = 2, .trainers = of_each, .operation_timeout = 30 * kMillisecond});
  for (int job = 0; job < rounds(40); ++job) {
    std::vector<Life> lives(ranks);
    const auto length = static_cast<unsigned>(random() % 6);
    for (Life& it : lives) {
      it.to_do = length + static_cast<unsigned>(random() % 4 == 0 ? random() % 3 : 0);
      const bool dies = random() % 4 == 0;
      it.dies = dies ? trainers.world.now() + random() % (2 * kMillisecond) : kNever;
    }
    const auto all_gone = [&] {
      for (unsigned rank = 0; rank < ranks; ++rank) live(trainers, rank, lives[rank]);
      return std::ranges::all_of(lives, [](const Life& it) { return it.gone; });
    };
    ASSERT_TRUE(trainers.world.run_until(all_gone, 2 * kSecond)) << "job " << job;

    trainers.world.run_for(kMillisecond);  // all ranks learn that the last trainer has gone
    std::vector<unsigned> order(ranks);
    for (unsigned rank = 0; rank < ranks; ++rank) order[rank] = rank;
    std::ranges::shuffle(order, random);
    std::vector<uint64_t> cookies(ranks);
    for (const unsigned rank : order) {
      if (random() % 2 == 0) trainers.world.run_for(random() % (300 * kMicrosecond));
      trainers.come(rank);
      cookies[rank] = trainers.submit(rank, kTask);
    }
    const auto ends = trainers.outcomes_of(cookies);
    for (unsigned rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(ends[rank].failed, 0U) << "job " << job << ", rank " << rank << ": " << ends[rank].text;
      ASSERT_TRUE(right(kTask, rank, ranks, trainers[rank].segment(0)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Jobs,
                         testing::Values(std::tuple{1, 1}, std::tuple{2, 1}, std::tuple{3, 1}, std::tuple{4, 1},
                                         std::tuple{1, 3}, std::tuple{2, 2}, std::tuple{3, 3}));

}  // namespace
}  // namespace gradlane::test::trainer_gone_test
