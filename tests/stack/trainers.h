// trainers.h - trainers on a stack: contexts of the library, operations whose results are known, and streams of them
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/gradlane.h"
#include "tests/stack/stack.h"

namespace gradlane::test {

// The result of an operation.
struct Outcome {
  gradlane_code code = GRADLANE_PENDING;
  std::string text;  // error message
  Nanos at = 0;
};

// Options of an operation that differ from the defaults.
struct How {
  const char* codec = nullptr;
  const char* strategy = nullptr;
  std::optional<uint64_t> tag = std::nullopt;
  int64_t timeout_ms = 0;
};
[[nodiscard]] gradlane_how how_of(const How& how);

// A rank's process, as the daemon sees it.
class Trainer {
 public:
  // Connects, for at most 60 s. If that fails, is_open() is false, and error() says why.
  Trainer(Stack& stack, unsigned rank);
  // Closes the connection, as if the process was killed.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  [[nodiscard]] bool is_open() const { return gl_ != nullptr; }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] gradlane_context* gl() const { return gl_; }
  [[nodiscard]] unsigned rank() const { return rank_; }

  // Allocates zeros in shared memory, which live as long as the trainer.
  [[nodiscard]] std::span<float> zeros(size_t count);
  // Returns the array of that number with its latest content. The first call allocates it with zeros. `count` must not
  // change.
  [[nodiscard]] std::span<float> array(unsigned number, size_t count);
  // Starts an operation. Returns 0 on an error, which error() describes.
  [[nodiscard]] gradlane_request all_reduce(std::span<float> data, const How& how = {});
  [[nodiscard]] gradlane_request barrier(const How& how = {});
  // Returns code GRADLANE_PENDING if the operation is still in flight.
  [[nodiscard]] Outcome test(gradlane_request request);
  [[nodiscard]] Outcome wait(gradlane_request request, Nanos time = 120 * kSecond);
  void resume(uint64_t tag);

 private:
  [[nodiscard]] gradlane_request begun(gradlane_code code, gradlane_request request);
  [[nodiscard]] Outcome ended(gradlane_code code);

  Stack& stack_;
  const unsigned rank_;
  gradlane_context* gl_ = nullptr;
  std::string error_;
  std::map<unsigned, std::span<float>> arrays_;
};

// Inputs and sums. Values are small multiples of 1/64, whose sums neither fp32 nor fixed:10 rounds. Consecutive steps
// differ, so data that is left over from one step is noticed in the next.
class Data {
 public:
  Data(unsigned world, uint64_t seed, size_t count);
  void fill(unsigned rank, uint64_t step, std::span<float> out) const;
  // Returns how many elements of a sum are wrong.
  [[nodiscard]] size_t wrong(uint64_t step, std::span<const float> sum) const;
  [[nodiscard]] size_t count() const { return count_; }

 private:
  const size_t count_;
  std::vector<std::vector<float>> of_;  // inputs by rank
  std::vector<float> sums_;
};

[[nodiscard]] uint64_t digest_of(std::span<const float> data);

// A trainer for each rank of a stack.
class TrainerGroup {
 public:
  using Outcomes = std::map<unsigned, Outcome>;  // the outcome of each rank

  // Connects all trainers.
  explicit TrainerGroup(Stack& stack);
  [[nodiscard]] Trainer& operator[](unsigned rank) { return *trainers_[rank]; }
  void open(unsigned rank);
  void close(unsigned rank) { trainers_[rank].reset(); }

  // Runs one operation on all connected trainers. Returns their outcomes, and checks the sums of those that succeed.
  [[nodiscard]] Outcomes all_reduce(size_t count = 1000, const How& how = {});
  [[nodiscard]] Outcomes barrier();
  void resume(uint64_t tag = 0);
  // Resumes and tries an all-reduce until it succeeds on all ranks, for at most `time`.
  void expect_works(size_t count = 1000, Nanos time = 30 * kSecond);

 private:
  [[nodiscard]] Outcomes finish(const std::map<unsigned, gradlane_request>& requests);
  Stack& stack_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  uint64_t number_ = 0;  // number of the latest operation
};
[[nodiscard]] bool all_succeeded(const TrainerGroup::Outcomes& outcomes);

}  // namespace gradlane::test
