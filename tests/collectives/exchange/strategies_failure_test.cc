// strategies_failure_test.cc - tests of ranks that fall silent, restart or cannot reach each other, with every strategy
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/strategy/topology.h"
#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::strategies_failure_test {
namespace {

constexpr Nanos kPeerTimeout = 2 * kSecond;
constexpr unsigned kWorld = 6;
constexpr size_t kCount = 40'000;  // in flight for some milliseconds

class StrategyFailures : public testing::TestWithParam<const char*> {
 protected:
  static std::vector<size_t> into_jobs(TestRing& ring) {
    EXPECT_TRUE(ring.wait_whole(kSecond));
    std::vector<JobSpec> specs = busy_jobs(ring.world());
    specs.push_back({.kind = OpKind::kAllReduce, .count = kCount, .codec = "raw"});
    const auto jobs = ring.start(specs);
    ring.run_for(kMillisecond);
    return jobs;
  }

  static std::vector<unsigned> all() { return {0, 1, 2, 3, 4, 5}; }
  // Returns the ranks that tests disturb: owners of aggregators and others.
  static std::vector<unsigned> some() { return thorough() ? all() : std::vector<unsigned>{0, 4, 5}; }
};

TEST_P(StrategyFailures, SilenceOfAnyRank) {
  for (const double loss : {0.0, 0.02}) {
    TestRing ring(slow_switch(GetParam(), kWorld, 7, loss));
    for (const unsigned silent : some()) {
      SCOPED_TRACE(testing::Message() << "rank " << silent << ", loss " << loss);
      const auto jobs = into_jobs(ring);
      ring.net().pause(silent);
      EXPECT_TRUE(ring.finish(jobs, kPeerTimeout + kSecond, {silent}));
      EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {silent}}, {silent}));
      ring.run_for(3 * kSecond);
      ring.net().resume(silent);
      ring.run_for(kMillisecond);
      EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {silent}}));
      EXPECT_TRUE(ring.works());
    }
  }
}

TEST_P(StrategyFailures, RestartOfAnyRank) {
  TestRing ring(slow_switch(GetParam(), kWorld, 8));
  for (const unsigned rank : some()) {
    SCOPED_TRACE(rank);
    const auto jobs = into_jobs(ring);
    ring.restart(rank);
    EXPECT_TRUE(ring.finish(jobs, kPeerTimeout, {rank}));
    EXPECT_TRUE(ring.ended(jobs, {FailureCode::kRestarted, {rank}}, {rank}));
    EXPECT_TRUE(ring.works());
  }
}

// Any two ranks may be cut off from each other, also ranks that are no neighbours in the ring. Ranks that exchange
// nothing are not affected.
TEST_P(StrategyFailures, PartitionOfAnyTwo) {
  const std::vector<StrategyId> strategies = find_strategies(GetParam());
  for (unsigned a = 0; a < (thorough() ? kWorld : 1); ++a) {
    for (unsigned b = a + 1; b < kWorld; ++b) {
      SCOPED_TRACE(testing::Message() << a << " and " << b);
      TestRing ring(slow_switch(GetParam(), kWorld, 9));
      const auto jobs = into_jobs(ring);
      ring.net().black_out(a, b, ring.net().now());
      ring.net().black_out(b, a, ring.net().now());
      EXPECT_TRUE(ring.finish(jobs, kPeerTimeout + kSecond));
      const std::vector<unsigned> linked = linked_ranks(strategies, kWorld, a);
      if (std::ranges::find(linked, b) == linked.end()) {
        EXPECT_TRUE(ring.succeeded(jobs));
        continue;
      }
      EXPECT_TRUE(ring.ended(jobs, {FailureCode::kSilent, {a, b}}));
      // Until the two ranks reach each other again, no operation begins, and the failure says so.
      const size_t lost = ring.start(JobSpec{.kind = OpKind::kBarrier});
      EXPECT_TRUE(ring.finish({&lost, 1}, 30 * kSecond));
      EXPECT_TRUE(ring.ended(lost, a, {FailureCode::kNoRing, all()}));
      ring.net().lift(a, b);
      ring.net().lift(b, a);
      EXPECT_TRUE(ring.wait_whole(5 * kSecond));
      EXPECT_TRUE(ring.works());
    }
  }
}

TEST_P(StrategyFailures, AbortOnAnyRank) {
  TestRing ring(slow_switch(GetParam(), kWorld, 10, 0.02));
  for (const unsigned rank : some()) {
    SCOPED_TRACE(rank);
    EXPECT_TRUE(ring.wait_whole(kSecond));
    const std::vector<JobSpec> two(2, {.kind = OpKind::kAllReduce, .count = kCount, .codec = "raw"});
    const auto jobs = ring.start(two);
    ring.run_for(3 * kMillisecond);
    ring.abort(jobs[0], rank);
    EXPECT_TRUE(ring.finish(jobs, 5 * kSecond));
    EXPECT_TRUE(ring.failed(jobs[0], {FailureCode::kAborted, {rank}}));
    EXPECT_TRUE(ring.succeeded(jobs[1]));
    EXPECT_TRUE(ring.works());
  }
}

// The ranks that wait for a missing rank name it.
TEST_P(StrategyFailures, WhoeverDoesNotComeIsNamed) {
  for (const unsigned late : some()) {
    SCOPED_TRACE(late);
    SimConfig config = slow_switch(GetParam(), kWorld, 11);
    config.exchange.operation_timeout = 500 * kMillisecond;
    TestRing ring(config);
    const size_t job = ring.make({.kind = OpKind::kAllReduce, .count = kCount, .codec = "raw"});
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (rank != late) ring.submit(job, rank);
    }
    EXPECT_TRUE(ring.finish({&job, 1}, 2 * kSecond, {late}));
    unsigned named = 0;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (rank == late) continue;
      EXPECT_TRUE(ring.failed(job, rank, {FailureCode::kStuck, all()}));
      if (ring.end_of(job, rank)->failure.rank == late) ++named;
    }
    EXPECT_GE(named, 1U);
    ring.submit(job, late);  // the late rank gets the failure as soon as it starts the operation
    EXPECT_TRUE(ring.finish({&job, 1}, kSecond));
    EXPECT_TRUE(ring.failed(job, late, {FailureCode::kStuck, all()}));
    EXPECT_TRUE(ring.works());
  }
}

// ---- Differences

TEST_P(StrategyFailures, AnotherStrategyUnderTheSameNumber) {
  TestRing ring(slow_switch(std::string(GetParam()) + ",ring", kWorld, 12));
  for (const unsigned odd : some()) {
    SCOPED_TRACE(odd);
    EXPECT_TRUE(ring.wait_whole(kSecond));
    const size_t job = ring.make({.kind = OpKind::kAllReduce, .count = 10'000, .codec = "fixed:10"});
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (rank == odd) {
        ring.submit_other(job, rank, [](Operation& operation) { operation.strategy = StrategyId{}; });
      } else {
        ring.submit(job, rank);
      }
    }
    EXPECT_TRUE(ring.finish({&job, 1}, 5 * kSecond));
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      EXPECT_TRUE(ring.failed(job, rank, {FailureCode::kMismatch, all()}));
      EXPECT_EQ(ring.end_of(job, rank)->failure.field, Field::kStrategy);
    }
    EXPECT_TRUE(ring.works());
  }
}

TEST_P(StrategyFailures, AnotherConfiguration) {
  SimConfig config = slow_switch(GetParam(), kWorld, 13);
  config.exchange.start_timeout = kSecond;
  config.adjust = [](unsigned node, ExchangeConfig& exchange) {
    if (node == 2) exchange.strategies.push_back(StrategyId{});
  };
  TestRing ring(config);
  const size_t job = ring.start(JobSpec{.kind = OpKind::kBarrier});
  EXPECT_TRUE(ring.finish({&job, 1}, 5 * kSecond));
  const Failure& failure = ring.end_of(job, 1)->failure;
  EXPECT_EQ(failure.code, FailureCode::kRefused);
  EXPECT_EQ(failure.field, Field::kStrategies);
  EXPECT_EQ(failure_text(failure), "rank 2 is configured differently: strategies: " + std::string(GetParam()) +
                                       " here, " + GetParam() + ", ring there");
}

// The libraries of all ranks can only make the same choices if all daemons have the same `auto` settings.
TEST_P(StrategyFailures, LeftOpenOnSome) {
  SimConfig config = slow_switch(GetParam(), kWorld, 13);
  config.exchange.start_timeout = kSecond;
  config.adjust = [](unsigned node, ExchangeConfig& exchange) {
    if (node == 2) exchange.auto_scope = {.codec = gl_auto{GL_BOUND_ABSOLUTE, 10}};
  };
  TestRing ring(config);
  const size_t job = ring.start(JobSpec{.kind = OpKind::kBarrier});
  EXPECT_TRUE(ring.finish({&job, 1}, 5 * kSecond));
  const Failure& failure = ring.end_of(job, 1)->failure;
  EXPECT_EQ(failure.code, FailureCode::kRefused);
  EXPECT_EQ(failure_text(failure),
            "rank 2 is configured differently: codec and strategy: no auto here, auto:2^-10 there");
}

// ---- Single cases

// Returns whether the packet has the notification that this stage has begun.
bool has_start(std::span<const uint8_t> packet, uint32_t operation, uint32_t stage) {
  if (!is_data(packet)) return false;
  for (size_t at = sizeof(LinkHeader); at + sizeof(RunHeader) <= packet.size();) {
    const auto run = load<RunHeader>(packet.data() + at);
    if (run.phase == Phase::kStart && run.operation == operation && run.first == stage) return true;
    at += sizeof(RunHeader) + run.bytes;
  }
  return false;
}

// A rank aborts before it has sent its part to a waiting rank. The next rank in the ring of all ranks has already
// finished. The waiting rank must still learn of the abort.
TEST(StrategyAborts, ReachWhoWaitsBehindThoseThatAreThrough) {
  const struct {
    const char* strategy;
    OpKind kind;
    unsigned fails;
    unsigned waits;
    uint32_t stage;
  } cases[] = {{"direct", OpKind::kReduceScatter, 0, 4, 0}, {"rings:3", OpKind::kAllReduce, 2, 0, 2}};
  for (const auto& it : cases) {
    SCOPED_TRACE(it.strategy);
    TestRing ring(slow_switch(it.strategy, kWorld, 3));
    ASSERT_TRUE(ring.wait_whole(kSecond));
    bool lose = true;
    ring.net().set_filter([&](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      return !(lose && from == it.waits && to == it.fails && has_start(packet, 0, it.stage));
    });
    const size_t job = ring.start(JobSpec{.kind = it.kind, .count = 1000});
    ring.run_for(20 * kMillisecond);
    EXPECT_NE(ring.end_of(job, it.fails + 1), nullptr);
    EXPECT_EQ(ring.end_of(job, it.waits), nullptr);
    ring.abort(job, it.fails);
    ring.run_for(kMillisecond);
    lose = false;
    EXPECT_TRUE(ring.finish({&job, 1}, kSecond));
    EXPECT_TRUE(ring.ended({&job, 1}, {FailureCode::kAborted, {it.fails}}));
    EXPECT_TRUE(ring.works());
  }
}

// A late start notification must not replace the one of an operation that is 256 later.
TEST(StrategyStages, AreNotForgottenForALateStart) {
  SimConfig config = slow_switch("rings:2", 4, 5);
  config.exchange.window = 4096;
  config.exchange.operations = 16;
  config.exchange.max_bytes = size_t{8} << 20;
  config.exchange.operation_timeout = kSecond;
  TestRing ring(config);
  ASSERT_TRUE(ring.wait_whole(kSecond));
  std::optional<uint32_t> lost;
  bool lose = true;
  bool last_stage = false;
  ring.net().set_filter([&](unsigned from, unsigned to, std::span<const uint8_t> packet) {
    if (from != 1 || to != 0) return true;
    const auto sequence = load<LinkHeader>(packet.data()).sequence;
    if (!lost && has_start(packet, 0, 0)) lost = sequence;
    last_stage |= has_start(packet, 256, 2);
    return !(lose && is_data(packet) && lost == sequence);
  });
  const JobSpec small = {.kind = OpKind::kAllReduce, .count = 64};
  std::vector<size_t> jobs = {ring.start(small)};
  ring.run_for(20 * kMicrosecond);
  while (jobs.size() < 256) {
    const size_t first = jobs.size();
    for (size_t i = 0; i < 15 && jobs.size() < 256; ++i) jobs.push_back(ring.start(small));
    ASSERT_TRUE(ring.finish(std::span(jobs).subspan(first), 100 * kMillisecond));
  }
  jobs.push_back(ring.start(JobSpec{.kind = OpKind::kAllReduce, .count = 1'000'000}));
  while (!last_stage && ring.end_of(jobs.back(), 0) == nullptr) ring.run_for(100 * kMicrosecond);
  ring.run_for(kMillisecond);
  lose = false;
  EXPECT_TRUE(ring.finish(jobs, 2 * kSecond));
  EXPECT_TRUE(ring.succeeded(jobs));
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, StrategyFailures,
                         testing::ValuesIn(thorough() ? std::vector{"direct", "rings:2", "rings:3", "aggregator:0",
                                                                    "aggregator:4,stream"}
                                                      : std::vector{"direct", "rings:3", "aggregator:4,stream"}),
                         name_of);

}  // namespace
}  // namespace gradlane::test::strategies_failure_test
