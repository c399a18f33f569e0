// chaos_test.cc - tests with random pauses, restarts, cut links, aborts and shut-downs, by seed
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "tests/collectives/exchange/exchange_fixture.h"
#include "tests/collectives/exchange/failure_fixture.h"

namespace gradlane::test::chaos_test {
namespace {

// A ring with all kinds of faults. Every operation must end in time on all ranks that live. If it succeeds, its result
// must be right. No rank may write to a tensor whose operation has ended. After the faults, the ring must work.
class Chaos {
 public:
  explicit Chaos(uint64_t seed) : random_(seed), world_(2 + one_of(7)), ring_(config(seed)), restarted_(world_) {}

  void round() {
    restarted_.assign(world_, false);
    jobs_.clear();
    for (const JobSpec& spec : busy_jobs(world_)) jobs_.push_back(ring_.make(spec));
    for (unsigned rank = 0; rank < world_; ++rank) {
      for (const size_t job : jobs_) ring_.submit(job, rank);
      if (one_of(3) == 0) ring_.run_for(random_.below(300 * kMicrosecond));
    }
    for (unsigned left = 1 + one_of(4); left != 0; --left) {
      ring_.run_for(random_.below(one_of(3) != 0 ? 800 * kMicrosecond : 2500 * kMillisecond));
      trouble();
    }
    ring_.run_for(random_.below(4 * kSecond));
    heal();
    for (unsigned rank = 0; rank < world_; ++rank) {
      if (!restarted_[rank]) check(rank);
    }
    ASSERT_TRUE(ring_.wait_whole(3 * kSecond));
    ring_.run_for(10 * kMillisecond);
    ASSERT_TRUE(ring_.works(10 * kSecond));
  }

 private:
  static constexpr Nanos kOperationTimeout = 5 * kSecond;

  unsigned one_of(unsigned n) { return static_cast<unsigned>(random_.below(n)); }

  SimConfig config(uint64_t seed) {
    SimConfig config = slow_ring(world_, seed, one_of(3) == 0 ? 0.02 : 0);
    config.exchange.operation_timeout = kOperationTimeout;
    if (one_of(4) == 0) config.exchange.window = 2;
    if (one_of(4) == 0) config.exchange.mtu = kMinPacket;
    if (one_of(4) == 0) config.pause_queue = 0;
    if (one_of(5) == 0) config.faults.reorder = config.faults.duplicate = config.faults.busy = 0.03;
    return config;
  }

  // Calls `visit` for each link from this rank and each link to it.
  template <typename Visit>
  void links_of(unsigned rank, Visit visit) {
    for (const unsigned other : {(rank + 1) % world_, (rank + world_ - 1) % world_}) {
      visit(rank, other);
      visit(other, rank);
    }
  }

  void trouble() {
    const unsigned rank = one_of(world_);
    const Nanos now = ring_.net().now();
    const Nanos end = now + random_.below(one_of(2) == 0 ? 3 * kSecond : 3 * kMillisecond);
    switch (one_of(7)) {
      case 0:
        ring_.net().pause(rank);
        break;
      case 1:
        ring_.net().resume(rank);
        break;
      case 2:
        ring_.net().resume(rank);
        ring_.restart(rank);
        restarted_[rank] = true;
        break;
      case 3:
        ring_.net().black_out(rank, (rank + 1) % world_, now, end);
        break;
      case 4:
        links_of(rank, [&](unsigned from, unsigned to) { ring_.net().black_out(from, to, now, end); });
        break;
      case 5:
        if (!restarted_[rank]) ring_.abort(jobs_[one_of(static_cast<unsigned>(jobs_.size()))], rank);
        break;
      default:
        if (one_of(3) == 0) ring_.net().close(rank);
    }
  }

  void heal() {
    for (unsigned rank = 0; rank < world_; ++rank) {
      ring_.net().resume(rank);
      links_of(rank, [&](unsigned from, unsigned to) { ring_.net().lift(from, to); });
    }
  }

  void check(unsigned rank) {
    const Nanos limit = ring_.net().now() + kOperationTimeout + kSecond;
    for (const size_t job : jobs_) {
      while (ring_.end_of(job, rank) == nullptr && ring_.net().now() < limit) ring_.run_for(kMillisecond);
      const SimCompletion* const end = ring_.end_of(job, rank);
      ASSERT_NE(end, nullptr) << "rank " << rank << ", job " << job;
      // These codes must not occur, because no test does what they report.
      EXPECT_NE(end->failure.code, FailureCode::kRefused);
      EXPECT_NE(end->failure.code, FailureCode::kMismatch);
      EXPECT_TRUE(ring_.ended(job, rank, {end->failure.code, {}}));
    }
  }

  Random random_;
  unsigned world_;
  TestRing ring_;
  std::vector<bool> restarted_;  // whether the rank has restarted and so forgotten this round's jobs, by rank
  std::vector<size_t> jobs_;
};

TEST(Chaos, EndsAndIsOverSomeTime) {
  for (uint64_t seed = 0; seed < (thorough() ? 100 : 8); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Chaos chaos(seed);
    for (unsigned round = 0; round < 3; ++round) {
      chaos.round();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gradlane::test::chaos_test
