// stage.h - a ring with a trainer for each rank, on which things break while operations are in flight
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

// What is played on.
struct Shape {
  const char* name = "usual";
  unsigned nodes = 4;
  unsigned lanes = 1;
  unsigned trainers = 1;
  bool local_reduce = false;
  const char* strategies = "ring";
  const char* codec = "raw";  // of the operations in flight; results are checked with two
  bool exact = true;          // its sums of Data are
  bool alone = false;         // trainers recover each by itself, and not together
  bool own_tags = false;      // the same without resume(), by tags of their own
  FaultChances faults = {};   // of the network
};

// How a stream has ended on one rank.
struct Failures {
  std::vector<Ended> all;  // of what was in flight or begun until the first was seen
};

class Stage {
 public:
  static constexpr Nanos kPeer = 2 * kSecond;
  // From a fault to the last error.
  static constexpr Nanos kBound = kPeer + 100 * kMillisecond;

  Stage(const Shape& shape, uint64_t seed);

  [[nodiscard]] Stack& stack() { return stack_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] Ranks everyone() const;
  [[nodiscard]] Ranks ranks_of(unsigned node) const;
  // As errors call them: with local_reduce the ranks of the ring are nodes.
  [[nodiscard]] Ranks names_of(const Ranks& ranks) const;

  // ---- Trainers
  void kill_trainer(unsigned rank) { trainers_[rank].reset(); }
  void new_trainer(unsigned rank);
  // Trainers that have no daemon, or a new one.
  void open();

  // Operations without an end, of which some have ended on each rank; returns at a random moment of one.
  void stream();
  // Another few on each rank.
  void expect_steps(unsigned count);
  // All at the same step, without an error: the longest pause of any rank.
  [[nodiscard]] Nanos stop_stream();
  // One operation, on these ranks only.
  void begin(const Ranks& ranks);
  // How what they have in flight ends on these ranks.
  [[nodiscard]] std::map<unsigned, Failures> failures(const Ranks& ranks);

  // What docs/client.md tells trainers to do after a failure; then two operations are right, at the first try.
  void all_right();
  // Each trainer on its own and at its own time, again and again until it works. `late`: a rank that comes a second
  // later than the others.
  void recover_alone(std::optional<unsigned> late = std::nullopt);
  // The one or the other, as the shape has it.
  void recover();

 private:
  struct Stream {
    std::deque<gradlane_request> pending;
    uint64_t begun = 0;
    uint64_t done = 0;
    bool one = false;  // one operation, no others
    bool failed = false;
    Nanos pause = 0;
    Nanos ended_at = 0;
    std::vector<Ended> failures;
  };
  void pump();
  void pump(unsigned rank);
  void submit(unsigned rank, Stream& stream);
  void note(unsigned rank, Stream& stream, const Ended& ended);
  [[nodiscard]] bool pumped_until(const std::function<bool()>& is_so, Nanos time);
  void new_streams(bool one);
  void check(unsigned rank, uint64_t step, const Data& data, std::span<const float> sum, bool exact);
  void one_of_each(const char* codec);

  const Shape shape_;
  Random random_;
  Stack stack_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<bool> must_open_;
  uint64_t number_;  // of streams and operations: their data's seed, and their tags
  std::unique_ptr<Data> data_;
  unsigned ahead_ = 2;
  std::optional<uint64_t> stop_at_;
  std::map<unsigned, Stream> streams_;
  std::map<uint64_t, uint64_t> digests_;  // by step
  Nanos pump_at_ = 0;
};

// Those that a text names.
[[nodiscard]] Ranks named_ranks(const std::string& text);

}  // namespace gradlane::test
