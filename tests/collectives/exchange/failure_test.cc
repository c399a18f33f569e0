// failure_test.cc - tests of ranks that fall silent, come back, and restart in the middle of operations
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::failure_test {
namespace {

const std::vector<unsigned> kWorlds = thorough() ? std::vector{2U, 3U, 4U, 8U, 16U} : std::vector{2U, 3U, 5U};
constexpr Nanos kPeerTimeout = 2 * kSecond;

unsigned after(unsigned rank, unsigned world) { return (rank + 1) % world; }
unsigned before(unsigned rank, unsigned world) { return (rank + world - 1) % world; }

// Returns the time that busy_jobs() take on a ring without faults.
Nanos duration_of_jobs(unsigned world) {
  TestRing ring(slow_ring(world, 1));
  EXPECT_TRUE(ring.wait_whole(kSecond));
  const Nanos begin = ring.net().now();
  const auto jobs = ring.start(busy_jobs(world));
  EXPECT_TRUE(ring.finish(jobs, kSecond));
  EXPECT_TRUE(ring.succeeded(jobs));
  return ring.net().now() - begin;
}

// Starts the jobs and runs for `percent` of their duration.
std::vector<size_t> run_into_jobs(TestRing& ring, Nanos duration, unsigned percent) {
  EXPECT_TRUE(ring.wait_whole(kSecond));
  const auto jobs = ring.start(busy_jobs(ring.world()));
  ring.run_for(duration * percent / 100);
  return jobs;
}

// Runs until the jobs have ended on all ranks except those in `away`. They must end within the peer timeout.
testing::AssertionResult fail_in_time(TestRing& ring, std::span<const size_t> jobs, const Expected& expected,
                                      std::initializer_list<unsigned> away) {
  if (!ring.finish(jobs, kPeerTimeout, away)) return testing::AssertionFailure() << "not within the peer time-out";
  return ring.ended(jobs, expected, away);
}

// Percentages of the jobs' duration after which faults begin. The jobs cannot have ended by then, even with loss.
constexpr std::array kPercents = {5U, 30U, 60U};

TEST(Silence, IsNoticedInTimeAndNamesTheRank) {
  for (const unsigned world : kWorlds) {
    const Nanos duration = duration_of_jobs(world);
    for (const double loss : {0.0, 0.01}) {
      TestRing ring(slow_ring(world, world, loss));
      unsigned silent = world / 2;
      for (const unsigned percent : kPercents) {  // several times with the same exchanges
        SCOPED_TRACE(testing::Message() << "world " << world << ", loss " << loss << ", " << percent << " %, rank "
                                        << silent);
        const auto jobs = run_into_jobs(ring, duration, percent);
        const Nanos begin = ring.net().now();
        ring.net().pause(silent);
        EXPECT_TRUE(fail_in_time(ring, jobs, {FailureCode::kSilent, {silent}}, {silent}));
        ring.run_until(begin + 5 * kSecond);
        ring.net().resume(silent);
        // The silent rank has missed the failures during its pause. Now its operations fail, too, with the same code.
        ring.run_for(kMillisecond);
        EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {silent}}));
        EXPECT_TRUE(ring.works());
        silent = after(silent, world);
      }
    }
  }
}

// A rank that received nothing during its pause does not report its neighbours as silent.
TEST(Silence, OfARankThatHasHeardNothingMeanwhile) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    SimConfig config = slow_ring(world, world);
    config.pause_queue = 0;
    TestRing ring(config);
    const auto jobs = run_into_jobs(ring, duration_of_jobs(world), 20);
    ring.net().pause(1);
    EXPECT_TRUE(fail_in_time(ring, jobs, {FailureCode::kSilent, {1}}, {1}));
    ring.run_for(2 * kSecond);
    ring.net().resume(1);
    ring.run_for(100 * kMillisecond);
    for (const size_t job : jobs) EXPECT_TRUE(ring.ended(job, 1, {FailureCode::kSilent, {1}}));
    EXPECT_TRUE(ring.works());
  }
}

// All ranks pause at once, as on one machine that stands still. No rank reports another as silent, because none could
// receive packets meanwhile.
TEST(Silence, OfEverybodyAtOnceIsNobodys) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    const auto jobs = run_into_jobs(ring, duration_of_jobs(world), 20);
    for (unsigned rank = 0; rank < world; ++rank) ring.net().pause(rank);
    ring.run_for(20 * kSecond);
    for (unsigned rank = 0; rank < world; ++rank) ring.net().resume(rank);
    EXPECT_TRUE(ring.finish(jobs, 5 * kSecond));
    for (const size_t job : jobs) EXPECT_TRUE(ring.succeeded(job));
  }
}

// Operations that are submitted while a rank is away wait until it is back.
TEST(Silence, NextOperationsMayBeSubmittedBeforeTheRankIsBack) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world, 0.01));
    const auto jobs = run_into_jobs(ring, duration_of_jobs(world), 20);
    ring.net().pause(0);
    EXPECT_TRUE(fail_in_time(ring, jobs, {FailureCode::kSilent, {0}}, {0}));
    const size_t next = ring.make({.kind = OpKind::kAllReduce, .count = 5000, .codec = "fixed:10"});
    for (unsigned rank = 1; rank < world; ++rank) ring.submit(next, rank);
    ring.run_for(5 * kSecond);
    ring.net().resume(0);
    ring.run_for(kMillisecond);
    EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {0}}));
    ring.submit(next, 0);
    EXPECT_TRUE(ring.finish({&next, 1}, kSecond));
    EXPECT_TRUE(ring.succeeded(next));
  }
}

// Pauses shorter than the timeout are no failure, however many there are.
TEST(Silence, ShortPausesDoNoHarm) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world, 0.01));
    const auto jobs = run_into_jobs(ring, duration_of_jobs(world), 20);
    for (unsigned i = 0; i < 6; ++i) {
      const unsigned rank = i % world;
      ring.net().pause(rank);
      ring.run_for(kPeerTimeout / 2);
      ring.net().resume(rank);
      ring.run_for(200 * kMicrosecond);
    }
    EXPECT_TRUE(ring.finish(jobs, kSecond));
    EXPECT_TRUE(ring.succeeded(jobs));
    EXPECT_EQ(ring.net().count(Counter::kPeerSilent), 0U);
  }
}

void black_out(TestRing& ring, unsigned rank, Nanos begin, Nanos end) {
  const unsigned world = ring.world();
  for (const unsigned other : {after(rank, world), before(rank, world)}) {
    ring.net().black_out(rank, other, begin, end);
    ring.net().black_out(other, rank, begin, end);
  }
}

// A rank that is cut off cannot know whether its neighbours died. It names one of them.
TEST(Silence, OfARankThatIsCutOff) {
  for (const unsigned world : kWorlds) {
    const Nanos duration = duration_of_jobs(world);
    for (const double loss : {0.0, 0.01}) {
      TestRing ring(slow_ring(world, world, loss));
      unsigned lost = world - 1;
      for (const unsigned percent : kPercents) {
        SCOPED_TRACE(testing::Message() << "world " << world << ", loss " << loss << ", " << percent << " %, rank "
                                        << lost);
        const auto jobs = run_into_jobs(ring, duration, percent);
        const Nanos begin = ring.net().now();
        black_out(ring, lost, begin, begin + 4 * kSecond);
        EXPECT_TRUE(ring.finish(jobs, kPeerTimeout));
        EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {lost}}, {lost}));
        for (const size_t job : jobs) {
          EXPECT_TRUE(ring.ended(job, lost, {FailureCode::kSilent, {before(lost, world), after(lost, world)}}));
        }
        // Operations are submitted while the rank is still away, or later.
        if (percent == 30) ring.run_until(begin + 4 * kSecond);
        EXPECT_TRUE(ring.works(10 * kSecond));
        lost = before(lost, world);
      }
    }
  }
}

// Rank 1 stops acknowledging shortly before it falls silent. It must count as silent, not as stuck.
TEST(Silence, OfARankThatDiesWithPacketsOnTheWay) {
  TestRing ring(slow_ring(2, 2));
  const auto jobs = run_into_jobs(ring, duration_of_jobs(2), 30);
  const Nanos begin = ring.net().now();
  ring.net().black_out(0, 1, begin, begin + 4 * kSecond);
  ring.net().black_out(1, 0, begin + kPeerTimeout / 50, begin + 4 * kSecond);
  EXPECT_TRUE(ring.finish(jobs, kPeerTimeout, {1}));
  EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {1}}, {1}));
  const Counters& counters = ring.net().node(0).exchange().counters();
  EXPECT_EQ(counters[Counter::kPeerStuck], 0U);
  EXPECT_EQ(counters[Counter::kPeerSilent], 1U);
}

// Loss in one direction of one link is enough to stop the ring. The failure names one of its two ends.
TEST(Silence, OfOneDirectionOfALink) {
  for (const unsigned world : kWorlds) {
    const Nanos duration = duration_of_jobs(world);
    for (const bool forward : {true, false}) {
      SCOPED_TRACE(testing::Message() << "world " << world << (forward ? ", forward" : ", backward"));
      TestRing ring(slow_ring(world, world));
      const unsigned from = forward ? 0 : 1;
      const auto jobs = run_into_jobs(ring, duration, 30);
      const Nanos begin = ring.net().now();
      ring.net().black_out(from, 1 - from, begin, begin + 5 * kSecond);
      EXPECT_TRUE(fail_in_time(ring, jobs, {FailureCode::kSilent, {0, 1}}, {}));
      EXPECT_TRUE(ring.works(10 * kSecond));
    }
  }
}

TEST(Silence, OfTwoRanksAtOnce) {
  for (const unsigned world : thorough() ? std::vector{3U, 4U, 8U, 16U} : std::vector{3U, 6U}) {
    const Nanos duration = duration_of_jobs(world);
    for (const unsigned distance : {1U, 2U, world / 2}) {
      const unsigned one = 1;
      const unsigned two = (one + distance) % world;
      SCOPED_TRACE(testing::Message() << "world " << world << ", ranks " << one << " and " << two);
      TestRing ring(slow_ring(world, world, 0.01));
      for (const Nanos apart : {Nanos{0}, 300 * kMicrosecond, 700 * kMillisecond}) {
        const auto jobs = run_into_jobs(ring, duration, 20);
        ring.net().pause(one);
        ring.run_for(apart);
        ring.net().pause(two);
        EXPECT_TRUE(fail_in_time(ring, jobs, {FailureCode::kSilent, {one, two}}, {one, two}));
        ring.run_for(kSecond);
        ring.net().resume(two);
        ring.run_for(apart);
        ring.net().resume(one);
        ring.run_for(kMillisecond);
        EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {one, two}}));
        EXPECT_TRUE(ring.works());
      }
    }
  }
}

TEST(Restart, IsNamedAndTheNextOperationSucceeds) {
  for (const unsigned world : kWorlds) {
    const Nanos duration = duration_of_jobs(world);
    for (const double loss : {0.0, 0.01}) {
      TestRing ring(slow_ring(world, world, loss));
      unsigned gone = world / 2;
      for (const unsigned percent : kPercents) {
        SCOPED_TRACE(testing::Message() << "world " << world << ", loss " << loss << ", " << percent << " %, rank "
                                        << gone);
        const auto jobs = run_into_jobs(ring, duration, percent);
        ring.restart(gone);
        // The restart is noticed at once, not after the timeout.
        EXPECT_TRUE(ring.finish(jobs, 50 * kMillisecond, {gone}));
        EXPECT_TRUE(ring.ended(jobs, {FailureCode::kRestarted, {gone}}, {gone}));
        EXPECT_TRUE(ring.works());
        gone = after(gone, world);
      }
    }
  }
}

// The restarted rank submits new operations at once, while its neighbours still have the earlier ones.
TEST(Restart, OperationsOfTheNewLifeAreNotMixedUp) {
  for (const unsigned world : kWorlds) {
    const Nanos duration = duration_of_jobs(world);
    for (const double loss : {0.0, 0.01, 0.2}) {
      TestRing ring(slow_ring(world, world, loss));
      for (unsigned round = 0; round < 3; ++round) {
        const unsigned gone = round % world;
        SCOPED_TRACE(testing::Message() << "world " << world << ", loss " << loss << ", rank " << gone);
        const auto jobs = run_into_jobs(ring, duration, round);
        ring.restart(gone);
        std::vector<size_t> next;
        for (const JobSpec& spec : busy_jobs(world)) next.push_back(ring.make(spec));
        for (const size_t job : next) ring.submit(job, gone);
        EXPECT_TRUE(ring.finish(jobs, kPeerTimeout, {gone}));
        EXPECT_TRUE(ring.ended(jobs, {FailureCode::kRestarted, {gone}}, {gone}));
        for (const size_t job : next) {
          for (unsigned rank = 0; rank < world; ++rank) {
            if (rank != gone) ring.submit(job, rank);
          }
        }
        EXPECT_TRUE(ring.finish(next, 5 * kSecond));
        EXPECT_TRUE(ring.succeeded(next));
      }
    }
  }
}

TEST(Restart, AfterALongAbsence) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world, 0.01));
    const auto jobs = run_into_jobs(ring, duration_of_jobs(world), 30);
    const unsigned gone = world - 1;
    ring.net().pause(gone);
    EXPECT_TRUE(fail_in_time(ring, jobs, {FailureCode::kSilent, {gone}}, {gone}));
    ring.run_for(kSecond);
    ring.net().resume(gone);
    ring.restart(gone);
    EXPECT_TRUE(ring.works());
  }
}

TEST(Restart, OfSeveralRanksAtOnceAndInTurn) {
  for (const unsigned world : kWorlds) {
    const Nanos duration = duration_of_jobs(world);
    for (unsigned gone = 2; gone <= world; gone = gone == world ? world + 1 : std::min(2 * gone, world)) {
      for (const Nanos apart : {Nanos{0}, 30 * kMicrosecond, 400 * kMicrosecond, 5 * kMillisecond}) {
        SCOPED_TRACE(testing::Message() << gone << " of " << world << ", " << apart << " ns apart");
        TestRing ring(slow_ring(world, world, 0.01));
        (void)run_into_jobs(ring, duration, 30);
        for (unsigned rank = 0; rank < gone; ++rank) {
          ring.restart(rank);
          ring.run_for(apart);
        }
        ring.run_for(20 * kMillisecond);
        EXPECT_TRUE(ring.works());
      }
    }
  }
}

}  // namespace
}  // namespace gradlane::test::failure_test
