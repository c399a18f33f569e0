// failure_fixture.h - a ring on which things go wrong: operations submitted rank by rank, and how each of them ended
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "collectives/operation.h"
#include "sim/simnet.h"
#include "tests/collectives/exchange/job.h"

namespace gradlane::test {

// What a failure must look like. Ranks: those it may name; none: any.
struct Expected {
  FailureCode code = FailureCode::kNone;
  std::vector<unsigned> ranks;
};

// A SimNet and the jobs that were submitted to it. When a job has ended, its tensor belongs to the caller again: the
// fixture keeps what is in it then, and checks at the end that nobody wrote to it later.
class TestRing {
 public:
  explicit TestRing(const SimConfig& config);
  ~TestRing();
  TestRing(const TestRing&) = delete;
  TestRing& operator=(const TestRing&) = delete;

  [[nodiscard]] SimNet& net() noexcept { return net_; }
  [[nodiscard]] unsigned world() const noexcept { return net_.nodes(); }

  // A job that no rank knows of yet.
  size_t make(JobSpec spec);
  void submit(size_t job, unsigned rank);
  // As other operations than what was made, on one rank.
  void submit_other(size_t job, unsigned rank, const std::function<void(Operation&)>& change);
  // Makes a job, and submits it on all ranks.
  size_t start(const JobSpec& spec);
  std::vector<size_t> start(std::span<const JobSpec> specs);
  void abort(size_t job, unsigned rank);

  void run_for(Nanos time) { run_until(net_.now() + time); }
  void run_until(Nanos time);
  // Until these have ended on all ranks but for those away; false if they have not within `time`.
  bool finish(std::span<const size_t> jobs, Nanos time, std::initializer_list<unsigned> away = {});

  // As SimNet::restart_node(): what was submitted there is forgotten.
  void restart(unsigned rank);

  // Null: it has not ended, or was forgotten, or never submitted.
  [[nodiscard]] const SimCompletion* end_of(size_t job, unsigned rank) const;

  // Success on all ranks, and the right result.
  [[nodiscard]] testing::AssertionResult succeeded(std::span<const size_t> jobs) const;
  [[nodiscard]] testing::AssertionResult succeeded(size_t job) const { return succeeded(std::span(&job, 1)); }
  // On this rank it failed as expected, or had succeeded with the right result.
  [[nodiscard]] testing::AssertionResult ended(size_t job, unsigned rank, const Expected& expected) const;
  [[nodiscard]] testing::AssertionResult failed(size_t job, unsigned rank, const Expected& expected) const;
  // All jobs on all ranks but those away; at least one has failed on one of them.
  [[nodiscard]] testing::AssertionResult ended(std::span<const size_t> jobs, const Expected& expected,
                                               std::initializer_list<unsigned> away = {}) const;
  [[nodiscard]] testing::AssertionResult failed(size_t job, const Expected& expected) const;

  // Makes a few jobs and runs them: for the time after trouble.
  [[nodiscard]] testing::AssertionResult works(Nanos limit = 5 * kSecond);

  // When the ring is whole on all ranks; false if that takes longer.
  [[nodiscard]] bool wait_whole(Nanos time);

 private:
  // A job on one rank.
  struct Share {
    uint64_t id = 0;
    Operation operation;
    std::optional<size_t> completion;  // its place among the node's
    Bytes left;                        // the tensor at that time
  };
  struct Entry {
    std::unique_ptr<Job> job;
    std::vector<Share> shares;
  };

  void submit(size_t job, unsigned rank, const Operation& operation);
  void note_completions();
  [[nodiscard]] static Bytes tensor(const Job& job, const Operation& operation);

  SimNet net_;
  StrategyId first_;  // of the configuration
  uint64_t seed_;
  std::vector<Entry> jobs_;
  std::vector<std::vector<size_t>> by_id_;  // of each rank's present life
  std::vector<size_t> noted_;               // completions of each rank
};

// Some operations that keep a ring of 400 Mb/s busy for a few milliseconds.
std::vector<JobSpec> busy_jobs(unsigned world);

// A ring of 400 Mb/s.
SimConfig slow_ring(unsigned nodes, uint64_t seed, double loss = 0);

// The same over a switch.
SimConfig slow_switch(const std::string& strategies, unsigned nodes, uint64_t seed, double loss = 0);

// ---- Packets by hand

// Fills in magic, version and CRC.
void seal(Bytes& packet);
[[nodiscard]] Bytes make_packet(LinkHeader header, std::span<const uint8_t> payload);
void append_run(Bytes& payload, RunHeader run, std::span<const uint8_t> block);

}  // namespace gradlane::test
