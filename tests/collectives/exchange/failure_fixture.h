// failure_fixture.h - a ring with faults: operations are submitted rank by rank, and the end of each is checked
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

// The failure that a test expects. `ranks`: the ranks that it may name; empty: any.
struct Expected {
  FailureCode code = FailureCode::kNone;
  std::vector<unsigned> ranks;
};

// A SimNet and the jobs that were submitted to it. When a job has ended, its tensor belongs to the caller again. The
// fixture keeps its contents at that time, and checks at the end that nobody wrote to it later.
class TestRing {
 public:
  explicit TestRing(const SimConfig& config);
  ~TestRing();
  TestRing(const TestRing&) = delete;
  TestRing& operator=(const TestRing&) = delete;

  [[nodiscard]] SimNet& net() noexcept { return net_; }
  [[nodiscard]] unsigned world() const noexcept { return net_.nodes(); }

  // Makes a job, without submitting it on any rank.
  size_t make(JobSpec spec);
  void submit(size_t job, unsigned rank);
  // Submits the job on one rank with a changed operation.
  void submit_other(size_t job, unsigned rank, const std::function<void(Operation&)>& change);
  // Makes a job, and submits it on all ranks.
  size_t start(const JobSpec& spec);
  std::vector<size_t> start(std::span<const JobSpec> specs);
  void abort(size_t job, unsigned rank);

  void run_for(Nanos time) { run_until(net_.now() + time); }
  void run_until(Nanos time);
  // Runs until these jobs have ended on all ranks except those in `away`. Returns false if that takes longer than
  // `time`.
  bool finish(std::span<const size_t> jobs, Nanos time, std::initializer_list<unsigned> away = {});

  // Restarts the node as SimNet::restart_node() does, and forgets the operations that were submitted on it.
  void restart(unsigned rank);

  // Returns the completion of the job on this rank, or null if the job has not ended, was forgotten, or was never
  // submitted.
  [[nodiscard]] const SimCompletion* end_of(size_t job, unsigned rank) const;

  // Returns whether the jobs succeeded on all ranks, with the right result.
  [[nodiscard]] testing::AssertionResult succeeded(std::span<const size_t> jobs) const;
  [[nodiscard]] testing::AssertionResult succeeded(size_t job) const { return succeeded(std::span(&job, 1)); }
  // Returns whether the job failed on this rank as expected, or succeeded with the right result.
  [[nodiscard]] testing::AssertionResult ended(size_t job, unsigned rank, const Expected& expected) const;
  [[nodiscard]] testing::AssertionResult failed(size_t job, unsigned rank, const Expected& expected) const;
  // Checks all jobs on all ranks except those in `away`. One job or more must have failed on one of these ranks.
  [[nodiscard]] testing::AssertionResult ended(std::span<const size_t> jobs, const Expected& expected,
                                               std::initializer_list<unsigned> away = {}) const;
  [[nodiscard]] testing::AssertionResult failed(size_t job, const Expected& expected) const;

  // Makes a few jobs and runs them, to check that the ring works after faults.
  [[nodiscard]] testing::AssertionResult works(Nanos limit = 5 * kSecond);

  // Runs until the ring is ready on all ranks. Returns false if that takes longer than `time`.
  [[nodiscard]] bool wait_whole(Nanos time);

 private:
  // The part of one rank in a job.
  struct Share {
    uint64_t id = 0;
    Operation operation;
    std::optional<size_t> completion;  // index of the completion among those of the node
    Bytes left;                        // copy of the tensor at the time of the completion
  };
  struct Entry {
    std::unique_ptr<Job> job;
    std::vector<Share> shares;
  };

  void submit(size_t job, unsigned rank, const Operation& operation);
  void note_completions();
  [[nodiscard]] static Bytes tensor(const Job& job, const Operation& operation);

  SimNet net_;
  StrategyId first_;  // first strategy of the configuration
  uint64_t seed_;
  std::vector<Entry> jobs_;
  std::vector<std::vector<size_t>> by_id_;  // jobs by operation id, by rank, since its latest restart
  std::vector<size_t> noted_;               // number of completions seen, by rank
};

// Returns some operations that keep a ring of 400 Mb/s busy for a few milliseconds.
std::vector<JobSpec> busy_jobs(unsigned world);

// Returns the configuration of a ring of 400 Mb/s.
SimConfig slow_ring(unsigned nodes, uint64_t seed, double loss = 0);

// Returns the configuration of a network of 400 Mb/s that has a switch and uses these strategies.
SimConfig slow_switch(const std::string& strategies, unsigned nodes, uint64_t seed, double loss = 0);

// ---- Handmade packets

// Fills in magic, version and CRC.
void seal(Bytes& packet);
[[nodiscard]] Bytes make_packet(LinkHeader header, std::span<const uint8_t> payload);
void append_run(Bytes& payload, RunHeader run, std::span<const uint8_t> block);

}  // namespace gradlane::test
