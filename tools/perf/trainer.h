// trainer.h - the trainer's interface (client/gradlane.h) as commands use it that measure: errors are exceptions
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/gradlane.h"
#include "tools/perf/plan.h"

namespace gradlane {

// An operation failed, or the daemon has no memory: not the fault of an option.
class PerfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TrainerPlace {
  const char* command = "perf";  // for messages
  std::string socket = {};       // empty: as the library finds it
  int rank = -1;                 // what RANK says, or any that is free
  int patience_ms = -1;          // while there is no daemon; the library's
  int64_t limit_ms = 0;          // of operations; the daemon's
};

class Trainer {
 public:
  static constexpr size_t kMaxGathered = 4096;  // numbers of a rank

  // Throws SetupError if there is no daemon.
  explicit Trainer(const TrainerPlace& place = {});
  ~Trainer() { gradlane_close(gl_); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  [[nodiscard]] unsigned rank() const noexcept { return static_cast<unsigned>(gradlane_rank(gl_)); }
  [[nodiscard]] unsigned world() const noexcept { return static_cast<unsigned>(gradlane_world(gl_)); }

  // Shared with the daemon; until free() or the end.
  [[nodiscard]] void* allocate(size_t bytes);
  void free(void* buffer);
  // The same where nobody wants to know of a fault.
  void release(void* buffer) noexcept { (void)gradlane_free(gl_, buffer); }

  // The trainers of a node are one rank: their inputs are added up before any are encoded.
  [[nodiscard]] bool adds_locally() const noexcept { return gradlane_local_reduce(gl_) == 1; }

  // Those that the daemon allows, its own first.
  [[nodiscard]] std::vector<std::string> strategies() const;

  // Why there are no operations by this codec, or by these two; empty: there are.
  [[nodiscard]] std::string fault_of(const std::string& codec);

  // `strategy` null: the daemon's. `states` null: none are kept. `root`: of a broadcast.
  void run(PerfOp op, void* data, size_t count, gradlane_type type, const char* strategy, const std::string& codec,
           gradlane_reduction reduction, float* states, int root = 0);
  // An all-reduce as so many, of about as many elements, all submitted before any is waited for.
  void run_together(unsigned together, void* data, size_t count, const PerfType& type, const char* strategy,
                    const std::string& codec, gradlane_reduction reduction);
  // The same without waiting: the tensor is the daemon's until wait() has returned.
  [[nodiscard]] gradlane_request start(PerfOp op, void* data, size_t count, gradlane_type type, const char* strategy,
                                       const std::string& codec, gradlane_reduction reduction);
  void wait(PerfOp op, gradlane_request request);
  void barrier();
  // The numbers of all ranks, rank after rank; all give the same number of them, at most kMaxGathered.
  [[nodiscard]] std::vector<int64_t> gather(std::span<const int64_t> numbers);

  // Sent in data packets since the start.
  [[nodiscard]] uint64_t data_bytes();
  [[nodiscard]] uint64_t data_packets();

 private:
  [[nodiscard]] gradlane_figures figures();
  void require(gradlane_code code, const char* what) const;
  void call(PerfOp op, void* data, size_t count, gradlane_type type, const gradlane_how& how, int root,
            gradlane_request* request);

  gradlane_context* gl_ = nullptr;
  int64_t* gathered_ = nullptr;
  std::vector<gradlane_request> requests_;
};

}  // namespace gradlane
