// trials_test.cc - tests of the choice among candidates: what ranks that measure different times choose, and how soon
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

extern "C" {
#include "client/tuner/trials.h"
}

namespace gradlane::test::rounds_test {
namespace {

constexpr unsigned kRaw = 0;
constexpr unsigned kDirect = 1;
constexpr unsigned kFixed = 2;
constexpr unsigned kFixedDirect = 3;

// Candidates: raw and fixed, each with two strategies. The prediction is that fixed with the first strategy is the
// fastest.
std::vector<gl_timed_candidate> candidates() {
  return {{.predicted = 100, .measured = 0, .strategy = 1, .codec = 1, .exact = true},
          {.predicted = 120, .measured = 0, .strategy = 2, .codec = 1, .exact = true},
          {.predicted = 50, .measured = 0, .strategy = 1, .codec = 5, .exact = false},
          {.predicted = 60, .measured = 0, .strategy = 2, .codec = 5, .exact = false}};
}

// Time in ns per element of an operation, by rank, candidate and number of the operation.
using Times = std::function<double(unsigned rank, unsigned candidate, unsigned operation)>;

// Ranks that run the same operations, each with its own times. For each trial they agree on the least time of all
// ranks, as the library does, or on the greatest one (`greatest`).
class Ranks {
 public:
  Ranks(unsigned ranks, const std::vector<gl_timed_candidate>& all, Times times, bool greatest = false)
      : times_(std::move(times)), all_(all), greatest_(greatest) {
    rounds_.resize(ranks);
    for (gl_tuner& it : rounds_) {
      it.count = static_cast<unsigned>(all.size());
      std::ranges::copy(all, it.candidates);
      gl_tuner_begin(&it);
    }
  }

  // Runs operations one after the other. Returns the candidate of each. All ranks must choose the same one.
  std::vector<unsigned> run(unsigned operations, uint64_t count = 250, uint64_t whole = 250) {
    std::vector<unsigned> went;
    for (unsigned i = 0; i < operations; ++i) {
      std::vector<gl_selection> turns;
      for (gl_tuner& it : rounds_) turns.push_back(turn_of(it, count, whole));
      for (const gl_selection& turn : turns) {
        EXPECT_EQ(turn.candidate, turns[0].candidate);
        EXPECT_EQ(turn.trial, turns[0].trial);
      }
      for (unsigned rank = 0; rank < rounds_.size(); ++rank) {
        gl_tuner_note(&rounds_[rank], &turns[rank],
                      times_(rank, turns[rank].candidate, done_) * static_cast<double>(count),
                      4 * static_cast<double>(count));
      }
      went.push_back(turns[0].candidate);
      trials_ += turns[0].trial >= 0 ? 1 : 0;
      ++done_;
    }
    return went;
  }

  [[nodiscard]] const gl_tuner& rank(unsigned number) const { return rounds_[number]; }
  [[nodiscard]] unsigned trials() const { return trials_; }

 private:
  gl_selection turn_of(gl_tuner& it, uint64_t count, uint64_t whole) {
    gl_selection turn{};
    for (;;) {
      const gl_turn what = gl_tuner_next(&it, count, whole, &turn);
      if (what == GL_TURN_GO) return turn;
      if (what == GL_TURN_PREDICT) {
        gl_tuner_predict(&it);
        continue;
      }
      // The ranks agree here one after the other. When the first rank asks, all ranks have the times of all trials.
      double all[GL_TRIALS];
      std::ranges::fill(all, greatest_ ? -1 : GL_TRIAL_UNKNOWN);
      for (const gl_tuner& each : rounds_) {
        double own[GL_TRIALS];
        gl_tuner_give(&each, greatest_, own);
        for (unsigned i = 0; i < GL_TRIALS; ++i)
          all[i] = greatest_ ? std::max(all[i], own[i]) : std::min(all[i], own[i]);
      }
      if (agreed_.size() <= it.round) agreed_.push_back({all, all + GL_TRIALS});
      gl_tuner_take(&it, agreed_[it.round].data());
    }
  }

  std::vector<gl_tuner> rounds_;
  std::vector<std::vector<double>> agreed_;
  Times times_;
  std::vector<gl_timed_candidate> all_;
  bool greatest_;
  unsigned done_ = 0;
  unsigned trials_ = 0;
};

double of_table(std::initializer_list<double> table, unsigned candidate) { return *(table.begin() + candidate); }

TEST(Rounds, FirstOperationIsTheBaselines) {
  Ranks ranks(2, candidates(), [](unsigned, unsigned, unsigned) { return 1.0; });
  EXPECT_EQ(ranks.run(1), std::vector{kRaw});
}

// A candidate that takes more than twice as long as the best one is tried only once, unless it was predicted to be
// faster. The others have three trials.
TEST(Rounds, TriesWhatHasLostOnce) {
  Ranks ranks(1, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({4, 5, 1, 2}, candidate);
  });
  const std::vector<unsigned> went = ranks.run(9);
  EXPECT_EQ(went,
            (std::vector{kRaw, kFixed, kDirect, kFixedDirect, kFixed, kFixedDirect, kFixedDirect, kFixed, kFixed}));
  EXPECT_EQ(ranks.trials(), 8U);
}

TEST(Rounds, TriesWhatIsInQuestionThreeTimes) {
  Ranks ranks(1, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({1.4, 1.5, 1, 1.2}, candidate);
  });
  const std::vector<unsigned> went = ranks.run(12);
  for (const unsigned candidate : {kRaw, kDirect, kFixed, kFixedDirect})
    EXPECT_EQ(std::ranges::count(went, candidate), 3);
  EXPECT_EQ(ranks.run(1), std::vector{kFixed});
}

// The choice is made within 20 operations.
TEST(Rounds, TriesTheTwoThatAreCloseFourTimesMore) {
  Ranks ranks(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({4, 1.4, 1.1, 1}, candidate);
  });
  const std::vector<unsigned> went = ranks.run(22);
  EXPECT_EQ(std::ranges::count(went, kRaw), 1);
  EXPECT_EQ(std::ranges::count(went, kDirect), 3);
  EXPECT_EQ(std::vector(went.begin() + 18, went.end()), std::vector(4, kFixedDirect)) << "settled";
  Ranks close(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({1.1, 1.1, 1.1, 1}, candidate);
  });
  EXPECT_EQ(close.run(21).back(), kFixedDirect);
  EXPECT_EQ(close.trials(), 20U);
}

// The median of seven times decides.
TEST(Rounds, ThreeSpikesDoNotCountWhereItIsClose) {
  Ranks ranks(1, candidates(), [](unsigned, unsigned candidate, unsigned operation) {
    return of_table({1.1, 9, 1, 9}, candidate) * (candidate == kFixed && operation % 7 < 3 ? 1.14 : 1);
  });
  ranks.run(20);
  EXPECT_EQ(ranks.run(1), std::vector{kFixed});
}

// A candidate whose only trial contradicts its prediction is tried again.
TEST(Rounds, OneTrialIsNotEnoughAgainstThePrediction) {
  Ranks ranks(1, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({1, 5, 4, 5}, candidate);
  });
  const std::vector<unsigned> went = ranks.run(20);
  EXPECT_EQ(std::ranges::count(went, kFixed), 3);
  EXPECT_EQ(std::ranges::count(went, kDirect), 1);
  EXPECT_EQ(went.back(), kRaw);
}

// If only one candidate is left after the first stage, it is chosen.
TEST(Rounds, AClearCaseIsSettledAtOnce) {
  Ranks ranks(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({8, 9, 1, 3}, candidate);
  });
  EXPECT_EQ(ranks.run(5).back(), kFixed);
  EXPECT_EQ(ranks.trials(), 4U);
}

TEST(Rounds, TheFirstTrialsAreAlone) {
  gl_tuner it{};
  it.count = 4;
  std::ranges::copy(candidates(), it.candidates);
  gl_tuner_begin(&it);
  EXPECT_TRUE(gl_tuner_alone(&it));
  gl_selection turn{};
  ASSERT_EQ(gl_tuner_next(&it, 1, 2, &turn), GL_TURN_GO);
  EXPECT_FALSE(gl_tuner_alone(&it)) << "another piece of the same tensor";
  ASSERT_EQ(gl_tuner_next(&it, 1, 2, &turn), GL_TURN_GO);
  EXPECT_TRUE(gl_tuner_alone(&it));
}

TEST(Rounds, ALosingChoiceIsBackAtTheBaselineWithinTwentyOperations) {
  Ranks ranks(4, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({1, 1.2, 3, 2}, candidate);
  });
  ranks.run(20);
  EXPECT_EQ(ranks.run(100), std::vector<unsigned>(100, kRaw));
  EXPECT_LE(ranks.trials(), 12U);
}

TEST(Rounds, AWinningChoiceStays) {
  Ranks ranks(4, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({8, 9, 1, 2}, candidate);
  });
  ranks.run(20);
  EXPECT_EQ(ranks.run(100), std::vector<unsigned>(100, kFixed));
}

TEST(Rounds, WhatBringsLessThanFivePercentIsNotWorthIt) {
  Ranks a(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({1, 1.1, 0.96, 1.1}, candidate);
  });
  a.run(20);
  EXPECT_EQ(a.run(1), std::vector{kRaw});
  Ranks b(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({1, 1.1, 0.94, 1.1}, candidate);
  });
  b.run(20);
  EXPECT_EQ(b.run(1), std::vector{kFixed});
}

// A fast exact candidate is preferred to one that rounds and is hardly faster.
TEST(Rounds, ExactIsPreferred) {
  std::vector<gl_timed_candidate> all = candidates();
  all[kDirect].predicted = 70;
  Ranks ranks(2, all, [](unsigned, unsigned candidate, unsigned) { return of_table({1, 0.5, 0.49, 0.6}, candidate); });
  const std::vector<unsigned> went = ranks.run(20);
  ASSERT_NE(std::ranges::find(went, kDirect), went.end());
  EXPECT_EQ(ranks.run(1), std::vector{kDirect});
}

// If two candidates are about equally fast, the one with the strategy of the baseline is preferred.
TEST(Rounds, ItsOwnStrategyIsPreferred) {
  Ranks near(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({4, 4, 1, 0.96}, candidate);
  });
  near.run(20);
  EXPECT_EQ(near.run(1), std::vector{kFixed});
  Ranks far(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({4, 4, 1, 0.94}, candidate);
  });
  far.run(20);
  EXPECT_EQ(far.run(1), std::vector{kFixedDirect});
}

// Ranks that start an operation early wait for the last rank, and only the last rank sees how long the operation takes.
// Here the last rank is a different one in each operation.
TEST(Rounds, SkewDoesNotCount) {
  const Times skewed = [](unsigned rank, unsigned candidate, unsigned operation) {
    const double wait = operation % 4 == rank ? 0 : 50 * (1 + (operation * 7 + rank) % 5);
    return of_table({3, 4, 1, 2}, candidate) + wait;
  };
  Ranks ranks(4, candidates(), skewed);
  ranks.run(20);
  EXPECT_EQ(ranks.run(50), std::vector<unsigned>(50, kFixed));
  for (unsigned i = 1; i < 4; ++i) EXPECT_EQ(ranks.rank(i).chosen, ranks.rank(0).chosen);
}

TEST(Rounds, ASpikeDoesNotCount) {
  Ranks ranks(2, candidates(), [](unsigned, unsigned candidate, unsigned operation) {
    return of_table({3, 4, 1, 2}, candidate) + (operation == 1 ? 1000 : 0);
  });
  ranks.run(20);
  EXPECT_EQ(ranks.run(1), std::vector{kFixed});
}

TEST(Rounds, PiecesOfATensorAreOneTrial) {
  Ranks ranks(2, candidates(), [](unsigned, unsigned candidate, unsigned) {
    return of_table({3, 4, 1, 2}, candidate);
  });
  const std::vector<unsigned> went = ranks.run(12 * 4, 250, 1000);
  for (size_t i = 0; i < went.size(); ++i) EXPECT_EQ(went[i], went[i / 4 * 4]) << i;
  EXPECT_EQ(went[4], kFixed);
  EXPECT_EQ(ranks.run(4, 250, 1000), std::vector<unsigned>(4, kFixed));
}

TEST(Rounds, WhatIsHopelessIsNotTried) {
  std::vector<gl_timed_candidate> all = candidates();
  for (gl_timed_candidate& it : all) it.predicted = it.exact ? 10 : 1000;
  Ranks ranks(2, all, [](unsigned, unsigned candidate, unsigned) { return of_table({1, 2, 3, 4}, candidate); });
  const std::vector<unsigned> went = ranks.run(40);
  EXPECT_EQ(std::ranges::count_if(went, [](unsigned candidate) { return candidate >= kFixed; }), 0);
}

TEST(Rounds, OneWayIsNoChoice) {
  Ranks ranks(2, {candidates()[0]}, [](unsigned, unsigned, unsigned) { return 1.0; });
  EXPECT_EQ(ranks.run(2000), std::vector<unsigned>(2000, kRaw));
  EXPECT_LE(ranks.trials(), 1U);
}

// Later rounds change the choice if the network changes.
TEST(Rounds, LooksAgain) {
  Ranks changed(3, candidates(), [](unsigned, unsigned candidate, unsigned operation) {
    return operation < 300 ? of_table({8, 9, 1, 2}, candidate) : of_table({1, 1.5, 4, 5}, candidate);
  });
  changed.run(300);
  EXPECT_EQ(changed.run(1), std::vector{kFixed});
  changed.run(30000);
  EXPECT_EQ(changed.run(1), std::vector{kRaw});
}

TEST(Rounds, LaterTrialsCostLittle) {
  for (const double slow : {8.0, 20.0}) {  // time of the slow candidates, as a multiple of the fastest one's
    const auto time = [slow](unsigned, unsigned candidate, unsigned) {
      return of_table({slow, slow + 1, 1, 2}, candidate);
    };
    Ranks ranks(1, candidates(), time);
    (void)ranks.run(20);
    double sum = 0;
    constexpr unsigned kOperations = 50000;
    for (const unsigned candidate : ranks.run(kOperations)) sum += time(0, candidate, 0);
    EXPECT_LT(sum, 1.02 * kOperations) << slow;
    EXPECT_GT(ranks.rank(0).round, 1U) << slow;
  }
}

// A rank whose part ends before the operation has ended on all ranks does not know how long the operation takes. So
// that rank must not decide: with the greatest times, the others do.
TEST(Rounds, ByTheGreatest) {
  const auto times = [](unsigned rank, unsigned candidate, unsigned operation) {
    if (rank == 2 && operation % 2 == 0) return 0.0;
    return rank == 0 ? of_table({4, 5, 9, 9}, candidate) : of_table({3, 3, 1, 1}, candidate);
  };
  Ranks least(3, candidates(), times);
  least.run(40);
  EXPECT_EQ(least.run(1), std::vector{kFixed});
  Ranks greatest(3, candidates(), times, true);
  greatest.run(40);
  EXPECT_EQ(greatest.run(1), std::vector{kRaw});
}

TEST(Rounds, WhatNobodyKnowsIsNotChosen) {
  gl_tuner it{};
  it.count = 4;
  std::ranges::copy(candidates(), it.candidates);
  gl_tuner_begin(&it);
  gl_selection turn{};
  double times[GL_TRIALS];
  std::ranges::fill(times, GL_TRIAL_UNKNOWN);
  for (unsigned stage = 0; stage < 2; ++stage) {
    gl_turn what = GL_TURN_GO;
    while ((what = gl_tuner_next(&it, 1, 1, &turn)) != GL_TURN_AGREE) {
      if (what == GL_TURN_PREDICT) gl_tuner_predict(&it);
    }
    gl_tuner_take(&it, times);
  }
  EXPECT_EQ(it.chosen, kRaw);
  EXPECT_EQ(gl_tuner_next(&it, 1, 1, &turn), GL_TURN_GO);
  EXPECT_EQ(turn.candidate, kRaw);
}

// The library ignores times that no daemon's clock can give, such as NaN.
TEST(Rounds, GarbageIsLeftOut) {
  Ranks ranks(1, candidates(), [](unsigned, unsigned candidate, unsigned operation) {
    return operation % 3 == 0 ? std::nan("") : of_table({3, 4, 1, 2}, candidate);
  });
  ranks.run(40);
  EXPECT_EQ(ranks.run(1), std::vector{kFixed});
}

}  // namespace
}  // namespace gradlane::test::rounds_test
