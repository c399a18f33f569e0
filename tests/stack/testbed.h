// testbed.h - a ring with a trainer for each rank, for faults while operations are in flight
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fault_dice.h"
#include "base/random.h"
#include "tests/stack/stack.h"
#include "tests/stack/trainers.h"

namespace gradlane::test {

using Ranks = std::set<unsigned>;

// A ring on which faults are tested.
struct RingSetup {
  const char* name = "usual";
  unsigned nodes = 4;
  unsigned lanes = 1;
  unsigned trainers = 1;  // number of trainers on each node
  bool local_reduce = false;
  const char* strategies = "ring";
  const char* codec = "raw";  // codec of the operations in flight; all_right() uses raw and fixed:10
  bool exact = true;          // whether `codec` adds Data without rounding
  bool alone = false;         // each trainer recovers at its own time
  bool own_tags = false;      // like `alone`, but trainers set tags and do not call resume()
  FaultChances faults = {};   // faults of the network
};

// The errors of one rank.
struct Failures {
  std::vector<Outcome> all;  // errors of all operations that the rank began before it saw the first error
};

class Testbed {
 public:
  static constexpr Nanos kPeer = 2 * kSecond;
  // Longest time from a fault to the last error.
  static constexpr Nanos kBound = kPeer + 100 * kMillisecond;

  Testbed(const RingSetup& setup, uint64_t seed);

  [[nodiscard]] Stack& stack() { return stack_; }
  [[nodiscard]] const RingSetup& setup() const { return setup_; }
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] Ranks everyone() const;
  [[nodiscard]] Ranks ranks_of(unsigned node) const;
  // The rank numbers that errors name: with local_reduce those of nodes, as one rank of each node is in the ring.
  [[nodiscard]] Ranks names_of(const Ranks& ranks) const;

  // ---- Trainers
  void kill_trainer(unsigned rank) { trainers_[rank].reset(); }
  void new_trainer(unsigned rank);
  // Connects the trainers that have no connection, or lost it.
  void open();

  // Starts endless all-reduces on all ranks. Returns after two have ended on each rank, at a random time.
  void stream();
  // Waits until `count` more operations have ended on each rank.
  void expect_steps(unsigned count);
  // Ends the all-reduces after the same operation on all ranks, and expects no error. Returns the longest time between
  // the ends of two operations on a rank.
  [[nodiscard]] Nanos stop_stream();
  // Starts one all-reduce on these ranks only.
  void begin(const Ranks& ranks);
  // Waits until all operations in flight on these ranks have failed. Returns their errors by rank.
  [[nodiscard]] std::map<unsigned, Failures> failures(const Ranks& ranks);

  // Reconnects and resumes all trainers, as docs/client.md says; then expects an all-reduce with raw and one with
  // fixed:10 to succeed at the first try.
  void all_right();
  // Each trainer reconnects, resumes and tries an all-reduce at its own time, until it succeeds. `late`: a rank that
  // starts 1 s after the others.
  void recover_alone(std::optional<unsigned> late = std::nullopt);
  // Calls recover_alone() if the setup says `alone` or `own_tags`, then all_right().
  void recover();

 private:
  struct Stream {
    std::deque<gradlane_request> pending;
    uint64_t begun = 0;
    uint64_t done = 0;
    bool one = false;  // whether the rank runs one operation only
    bool failed = false;
    Nanos pause = 0;
    Nanos ended_at = 0;
    std::vector<Outcome> failures;
  };
  void pump();
  void pump(unsigned rank);
  void submit(unsigned rank, Stream& stream);
  void note(unsigned rank, Stream& stream, const Outcome& ended);
  [[nodiscard]] bool pumped_until(const std::function<bool()>& is_so, Nanos time);
  void new_streams(bool one);
  void check(unsigned rank, uint64_t step, const Data& data, std::span<const float> sum, bool exact);
  void one_of_each(const char* codec);

  const RingSetup setup_;
  Random random_;
  Stack stack_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<bool> must_open_;
  uint64_t number_;  // number of the stream or operation; seed of its data, and part of its tags
  std::unique_ptr<Data> data_;
  unsigned ahead_ = 2;
  std::optional<uint64_t> stop_at_;
  std::map<unsigned, Stream> streams_;
  std::map<uint64_t, uint64_t> digests_;  // digest of the sum, by step
  Nanos pump_at_ = 0;
};

// Returns the ranks that a text names.
[[nodiscard]] Ranks named_ranks(const std::string& text);

}  // namespace gradlane::test
