// abort_test.cc - tests of operations that are aborted, differ between ranks or take too long, and of shut-downs
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "client/tuner/agreement.h"
#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::abort_test {
namespace {

const std::vector<unsigned> kWorlds = thorough() ? std::vector{2U, 3U, 4U, 8U} : std::vector{2U, 3U};

// Returns all jobs except `one`.
std::vector<size_t> others_of(std::vector<size_t> jobs, size_t one) {
  std::erase(jobs, one);
  return jobs;
}

// Expects that one operation fails, and that all others are right, also later ones.
void expect_one_aborted(TestRing& ring, const std::vector<size_t>& jobs, size_t aborted,
                        const std::vector<unsigned>& by) {
  EXPECT_TRUE(ring.finish(jobs, kSecond));
  for (unsigned rank = 0; rank < ring.world(); ++rank) {
    EXPECT_TRUE(ring.ended(aborted, rank, {FailureCode::kAborted, by}));
  }
  EXPECT_TRUE(ring.succeeded(others_of(jobs, aborted)));
  EXPECT_TRUE(ring.works());
}

TEST(Abort, BeforeItHasStartedAnywhere) {
  for (const unsigned world : kWorlds) {
    for (const double loss : {0.0, 0.05}) {
      for (size_t place = 0; place < 6; ++place) {
        SCOPED_TRACE(testing::Message() << "world " << world << ", loss " << loss << ", job " << place);
        TestRing ring(slow_ring(world, world, loss));
        const auto jobs = ring.start(busy_jobs(world));
        ring.abort(jobs[place], world - 1);
        expect_one_aborted(ring, jobs, jobs[place], {world - 1});
        EXPECT_TRUE(ring.failed(jobs[place], {FailureCode::kAborted, {world - 1}}));
      }
    }
  }
}

TEST(Abort, InTheMiddle) {
  for (const unsigned world : kWorlds) {
    for (const double loss : {0.0, 0.01}) {
      for (size_t place = 0; place < 6; ++place) {
        for (const Nanos later : {kMicrosecond, 200 * kMicrosecond, 900 * kMicrosecond, 2 * kMillisecond}) {
          SCOPED_TRACE(testing::Message()
                       << "world " << world << ", loss " << loss << ", job " << place << ", " << later << " ns");
          TestRing ring(slow_ring(world, place, loss));
          ASSERT_TRUE(ring.wait_whole(kSecond));
          const auto jobs = ring.start(busy_jobs(world));
          ring.run_for(later);
          const unsigned by = static_cast<unsigned>(place) % world;
          const bool over = ring.end_of(jobs[place], by) != nullptr;
          ring.abort(jobs[place], by);
          expect_one_aborted(ring, jobs, jobs[place], {by});
          if (!over) {
            EXPECT_TRUE(ring.failed(jobs[place], by, {FailureCode::kAborted, {by}}));
          } else {
            EXPECT_TRUE(ring.succeeded(jobs[place]));
          }
        }
      }
    }
  }
}

// A rank that has finished the operation keeps its success. Other ranks may succeed, too, if such a rank has sent them
// all they need.
TEST(Abort, AfterSomeHaveFinishedIt) {
  for (const unsigned world : kWorlds) {
    for (const unsigned ranks : {1U, (world + 1) / 2}) {
      SCOPED_TRACE(testing::Message() << "world " << world << ", at least " << ranks);
      TestRing ring(slow_ring(world, world));
      ASSERT_TRUE(ring.wait_whole(kSecond));
      const auto jobs = ring.start(busy_jobs(world));
      const auto done = [&] {
        unsigned count = 0;
        for (unsigned rank = 0; rank < world; ++rank) count += ring.end_of(jobs[0], rank) != nullptr ? 1 : 0;
        return count;
      };
      while (done() < ranks) ring.run_for(kMicrosecond);
      ASSERT_LT(done(), world);
      unsigned by = 0;
      while (ring.end_of(jobs[0], by) != nullptr) ++by;
      ring.abort(jobs[0], by);
      expect_one_aborted(ring, jobs, jobs[0], {by});
      EXPECT_TRUE(ring.failed(jobs[0], by, {FailureCode::kAborted, {by}}));
    }
  }
}

TEST(Abort, FromTwoRanksAtOnce) {
  for (const unsigned world : kWorlds) {
    for (unsigned other = 1; other < world; ++other) {
      for (const Nanos apart : {Nanos{0}, 20 * kMicrosecond, 100 * kMicrosecond}) {
        SCOPED_TRACE(testing::Message() << "world " << world << ", ranks 0 and " << other << ", " << apart << " ns");
        TestRing ring(slow_ring(world, world, 0.01));
        ASSERT_TRUE(ring.wait_whole(kSecond));
        const auto jobs = ring.start(busy_jobs(world));
        ring.run_for(300 * kMicrosecond);
        ring.abort(jobs[1], 0);
        ring.run_for(apart);
        ring.abort(jobs[1], other);
        expect_one_aborted(ring, jobs, jobs[1], {0, other});
      }
    }
  }
}

// A rank that submits the operation after another rank's abort gets that abort as its error.
TEST(Abort, OfWhatOthersHaveNotSubmittedYet) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    TestRing ring(slow_ring(world, world));
    ASSERT_TRUE(ring.wait_whole(kSecond));
    std::vector<size_t> jobs;
    for (const JobSpec& spec : busy_jobs(world)) jobs.push_back(ring.make(spec));
    for (const size_t job : jobs) ring.submit(job, 1);
    ring.run_for(5 * kMillisecond);
    ring.abort(jobs[2], 1);
    ring.run_for(5 * kMillisecond);
    for (unsigned rank = 0; rank < world; ++rank) {
      if (rank == 1) continue;
      for (const size_t job : jobs) ring.submit(job, rank);
      ring.run_for(5 * kMillisecond);
    }
    EXPECT_TRUE(ring.finish(jobs, kSecond));
    EXPECT_TRUE(ring.failed(jobs[2], {FailureCode::kAborted, {1}}));
    EXPECT_TRUE(ring.succeeded(others_of(jobs, jobs[2])));
    EXPECT_TRUE(ring.works());
  }
}

// Many more operations are aborted than the exchange has slots. All slots become free again.
TEST(Abort, OfAllOperationsAgainAndAgain) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    SimConfig config = slow_ring(world, world, 0.01);
    config.exchange.operations = 6;
    TestRing ring(config);
    for (unsigned round = 0; round < 20; ++round) {
      const auto jobs = ring.start(busy_jobs(world));
      ring.run_for(round * 40 * kMicrosecond);
      for (const size_t job : jobs) ring.abort(job, round % world);
      ASSERT_TRUE(ring.finish(jobs, kSecond));
      ring.run_for(50 * kMillisecond);
    }
    EXPECT_TRUE(ring.works());
  }
}

// A failed operation clears its residual if it has started. Otherwise the residual stays.
TEST(Abort, ClearsResiduals) {
  for (const bool started : {true, false}) {
    SCOPED_TRACE(started);
    TestRing ring(slow_ring(3, 1));
    const size_t job = ring.make(busy_jobs(3)[0]);
    std::vector<std::vector<float>> residuals(3, std::vector<float>(busy_jobs(3)[0].count, 0.25F));
    if (!started) ring.net().pause(2);
    for (const unsigned rank : {0U, 1U, 2U}) {
      ring.submit_other(job, rank, [&](Operation& operation) { operation.residual = residuals[rank].data(); });
    }
    ring.run_for(started ? 400 * kMicrosecond : 11 * kSecond);
    if (started) ring.abort(job, 1);
    ring.run_for(kMillisecond);
    for (const unsigned rank : {0U, 1U}) {
      EXPECT_TRUE(ring.failed(job, rank, {started ? FailureCode::kAborted : FailureCode::kNoRing, {1, 2}}));
      EXPECT_EQ(residuals[rank], std::vector<float>(residuals[rank].size(), started ? 0.0F : 0.25F));
    }
  }
}

// ---- Operations that differ

struct Difference {
  const char* name;
  JobSpec spec;
  std::function<void(Operation&)> change;
  Field field;
  uint64_t common;
  uint64_t odd;
};

uint64_t codec_value(const char* name) {
  const Codec codec = find_codec(name);
  return static_cast<uint64_t>(codec.id()) << 8 | codec.param();
}

std::vector<Difference> differences() {
  const auto of = [](auto value) { return static_cast<uint64_t>(value); };
  const JobSpec sum = {.kind = OpKind::kAllReduce, .count = 5000, .codec = "raw"};
  const JobSpec copy = {.kind = OpKind::kBroadcast, .count = 5000, .codec = "raw"};
  return {
      {"count", sum, [](Operation& op) { op.count = 4999; }, Field::kCount, 5000, 4999},
      {"nothing", sum, [](Operation& op) { op.count = 0; }, Field::kCount, 5000, 0},
      {"kind", sum, [](Operation& op) { op.kind = OpKind::kBroadcast; }, Field::kKind, of(OpKind::kAllReduce),
       of(OpKind::kBroadcast)},
      {"barrier", sum, [](Operation& op) { op.kind = OpKind::kBarrier; }, Field::kKind, of(OpKind::kAllReduce),
       of(OpKind::kBarrier)},
      {"type", sum, [](Operation& op) { op.type = ElementType::kInt32; }, Field::kType, of(ElementType::kFloat32),
       of(ElementType::kInt32)},
      {"root", copy, [](Operation& op) { op.root = 1; }, Field::kRoot, 0, 1},
      {"codec", sum, [](Operation& op) { op.codec = find_codec("fixed:10"); }, Field::kCodec, codec_value("raw"),
       codec_value("fixed:10")},
      {"average", sum, [](Operation& op) { op.reduction = Reduction::kAverage; }, Field::kReduction, 0, 1},
      {"tag", sum, [](Operation& op) { op.tag = 77; }, Field::kTag, 0, 77},
      {"choice", sum,
       [](Operation& op) {
         op.type = ElementType::kFloat64;
         op.count /= 2;
         op.tag = gl_agreement_tag(256);
       },
       Field::kChoice, 0, 1},
  };
}

// Returns whether the failure names the difference. The rank before the odd one must name the odd rank. The odd rank
// must name the rank after it.
bool names_difference(const Failure& failure, const Difference& difference, unsigned odd, unsigned world) {
  if (failure.code != FailureCode::kMismatch || failure.field != difference.field) return false;
  if (failure.ours == difference.common) return failure.rank == odd && failure.theirs == difference.odd;
  return failure.rank == (odd + 1) % world && failure.ours == difference.odd && failure.theirs == difference.common;
}

TEST(Mismatch, FailsOnAllRanksAndNamesTheDifference) {
  for (const unsigned world : kWorlds) {
    for (const Difference& difference : differences()) {
      for (const Nanos late : {Nanos{0}, 30 * kMillisecond}) {  // the odd rank comes later than the others
        const unsigned odd = world / 2;
        SCOPED_TRACE(testing::Message() << "world " << world << ", " << difference.name << ", " << late << " ns");
        TestRing ring(slow_ring(world, world, 0.01));
        std::vector<size_t> jobs;
        for (const JobSpec& spec : busy_jobs(world)) jobs.push_back(ring.make(spec));
        const size_t bad = ring.make(difference.spec);
        jobs.insert(jobs.begin() + 2, bad);
        const auto submit = [&](unsigned rank) {
          for (const size_t job : jobs) {
            if (job == bad && rank == odd) {
              ring.submit_other(job, rank, difference.change);
            } else {
              ring.submit(job, rank);
            }
          }
        };
        for (unsigned rank = 0; rank < world; ++rank) {
          if (rank != odd) submit(rank);
        }
        ring.run_for(late);
        submit(odd);
        EXPECT_TRUE(ring.finish(jobs, kSecond));
        for (unsigned rank = 0; rank < world; ++rank) {
          const SimCompletion* const end = ring.end_of(bad, rank);
          ASSERT_NE(end, nullptr) << rank;
          // The root of a broadcast finishes when it has sent everything. It does not wait for ranks that are far away.
          const bool root_side = difference.spec.kind == OpKind::kBroadcast && rank < odd;
          if (root_side && !end->failure) continue;
          EXPECT_TRUE(names_difference(end->failure, difference, odd, world))
              << "rank " << rank << ": " << failure_text(end->failure);
        }
        EXPECT_TRUE(ring.succeeded(others_of(jobs, bad)));
        EXPECT_TRUE(ring.works());
      }
    }
  }
}

// ---- Too late

TEST(Deadline, RingThatDoesNotComeUp) {
  for (const unsigned world : kWorlds) {
    for (unsigned missing = 0; missing < world; ++missing) {
      SCOPED_TRACE(testing::Message() << "world " << world << " without rank " << missing);
      TestRing ring(slow_ring(world, world));
      ring.net().pause(missing);
      const std::array jobs = {ring.make(busy_jobs(world)[0]), ring.make(busy_jobs(world)[4])};
      for (unsigned rank = 0; rank < world; ++rank) {
        if (rank == missing) continue;
        for (const size_t job : jobs) ring.submit(job, rank);
      }
      ring.run_until(10 * kSecond - 1);
      for (unsigned rank = 0; rank < world; ++rank) EXPECT_EQ(ring.end_of(jobs[0], rank), nullptr);
      EXPECT_TRUE(ring.finish(jobs, 10 * kMillisecond, {missing}));
      EXPECT_TRUE(ring.ended(jobs, {FailureCode::kNoRing, {missing}}, {missing}));
      ring.net().resume(missing);
      ring.run_for(kMillisecond);
      EXPECT_TRUE(ring.works());
    }
  }
}

// An abort before the ring is ready ends the operation within start_timeout, although its own time limit is an hour.
TEST(Abort, WhereTheRingDoesNotComeUp) {
  SimConfig config;
  config.nodes = 2;
  config.exchange.start_timeout = kSecond;
  SimNet net(config);
  net.set_filter([](unsigned, unsigned, std::span<const uint8_t>) { return false; });
  std::vector<float> data(100);
  Operation operation;
  operation.count = data.size();
  operation.data = data.data();
  operation.timeout = 3600 * kSecond;
  const uint64_t id = net.submit(0, operation);
  net.run_until(kMillisecond);
  net.abort(0, id);
  EXPECT_TRUE(net.run_until([&] { return !net.node(0).completions().empty(); }, kSecond + 2 * kMillisecond));
}

TEST(Deadline, RingWithoutTwo) {
  TestRing ring(slow_ring(8, 1));
  const std::vector<unsigned> missing = {2, 5};
  for (const unsigned rank : missing) ring.net().pause(rank);
  const size_t job = ring.make(busy_jobs(8)[0]);
  for (const unsigned rank : {0U, 1U, 3U, 4U, 6U, 7U}) ring.submit(job, rank);
  EXPECT_TRUE(ring.finish({&job, 1}, 10 * kSecond + 10 * kMillisecond, {2, 5}));
  EXPECT_TRUE(ring.ended({&job, 1}, {FailureCode::kNoRing, missing}, {2, 5}));
  for (const unsigned rank : missing) ring.net().resume(rank);
  EXPECT_TRUE(ring.works());
}

// The rank before the missing one waits for it to start. All others wait for data of their neighbour.
TEST(Deadline, RankThatNeverSubmits) {
  for (const unsigned world : kWorlds) {
    SCOPED_TRACE(world);
    const unsigned lazy = world - 1;
    TestRing ring(slow_ring(world, world, 0.01));
    std::vector<size_t> jobs;
    for (const JobSpec& spec : busy_jobs(world)) jobs.push_back(ring.make(spec));
    const size_t never = ring.make(busy_jobs(world)[0]);
    jobs.push_back(never);
    for (unsigned rank = 0; rank < world; ++rank) {
      for (const size_t job : jobs) {
        if (rank != lazy || job != never) ring.submit(job, rank);
      }
    }
    EXPECT_TRUE(ring.finish(others_of(jobs, never), kSecond));
    EXPECT_TRUE(ring.succeeded(others_of(jobs, never)));
    ring.run_until(60 * kSecond - kMillisecond);
    for (unsigned rank = 0; rank < world; ++rank) EXPECT_EQ(ring.end_of(never, rank), nullptr);
    EXPECT_TRUE(ring.finish({&never, 1}, kSecond, {lazy}));
    EXPECT_TRUE(ring.ended({&never, 1}, {FailureCode::kStuck, {}}, {lazy}));
    if (world == 2) {
      EXPECT_TRUE(ring.failed(never, 0, {FailureCode::kStuck, {lazy}}));
    }
    ring.submit(never, lazy);  // now the lazy rank submits the operation, too
    EXPECT_TRUE(ring.finish({&never, 1}, kSecond));
    EXPECT_TRUE(ring.failed(never, {FailureCode::kStuck, {}}));
    EXPECT_TRUE(ring.works());
  }
}

// ---- Shutting down

TEST(Close, IsHeardOfWithinMilliseconds) {
  for (const unsigned world : {2U, 3U, 4U, 8U, 16U}) {
    for (const double loss : {0.0, 0.01}) {
      SCOPED_TRACE(testing::Message() << "world " << world << ", loss " << loss);
      TestRing ring(slow_ring(world, world, loss));
      for (const unsigned by : {0U, world - 1}) {
        ASSERT_TRUE(ring.wait_whole(kSecond));
        const auto jobs = ring.start(busy_jobs(world));
        ring.run_for(700 * kMicrosecond);
        ring.net().close(by);
        EXPECT_TRUE(ring.finish(jobs, 10 * kMillisecond));
        EXPECT_TRUE(ring.ended(jobs, {FailureCode::kClosed, {by}}));
        EXPECT_TRUE(ring.works());
      }
    }
  }
}

}  // namespace
}  // namespace gradlane::test::abort_test
