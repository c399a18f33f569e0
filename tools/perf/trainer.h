// trainer.h - the trainer's interface (client/gradlane.h) for commands that measure: errors are exceptions
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/gradlane.h"
#include "tools/perf/settings.h"

namespace gradlane {

// Thrown if an operation fails or the daemon has no memory. Wrong options throw SetupError instead.
class PerfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TrainerPlace {
  const char* command = "perf";  // name of the command, for messages
  std::string socket = {};       // path of the daemon's socket; empty: the library finds it
  int rank = -1;                 // rank to take; -1: the one in the variable RANK, or any free one
  int patience_ms = -1;          // time to wait for a daemon that has not started; -1: the library's default
  int64_t limit_ms = 0;          // time limit of operations; 0: the daemon's
};

class Trainer {
 public:
  static constexpr size_t kMaxGathered = 4096;  // limit of the numbers that a rank passes to gather()

  // Throws SetupError if there is no daemon.
  explicit Trainer(const TrainerPlace& place = {});
  ~Trainer() { gradlane_close(gl_); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  [[nodiscard]] unsigned rank() const noexcept { return static_cast<unsigned>(gradlane_rank(gl_)); }
  [[nodiscard]] unsigned world() const noexcept { return static_cast<unsigned>(gradlane_world(gl_)); }

  // Allocates memory that is shared with the daemon. It is valid until free() or the end of this object.
  [[nodiscard]] void* allocate(size_t bytes);
  void free(void* buffer);
  // Frees a buffer and ignores errors.
  void release(void* buffer) noexcept { (void)gradlane_free(gl_, buffer); }

  // Returns whether the trainers of a node form one rank: their inputs are added up before any of them is encoded.
  [[nodiscard]] bool adds_locally() const noexcept { return gradlane_local_reduce(gl_) > 1; }

  // Returns the strategies that the daemon allows, its default first.
  [[nodiscard]] std::vector<std::string> strategies() const;

  // Returns why the daemon cannot use this codec, or this pair of codecs. It is empty if the daemon can.
  [[nodiscard]] std::string fault_of(const std::string& codec);

  // Returns why contributions cannot be encoded by this codec. It is empty if they can.
  [[nodiscard]] std::string encoding_fault_of(const std::string& codec);

  // Runs an operation and waits for its end. `strategy` null: the daemon's. `states` null: none are kept. `root` is
  // used by broadcasts only.
  void run(PerfOp op, void* data, size_t count, gradlane_type type, const char* strategy, const std::string& codec,
           gradlane_reduction reduction, float* states, int root = 0);
  // Encodes floats as a contribution to later all-reduces. `encoded` has space for gradlane_encoded_space() bytes.
  void encode(float* data, size_t count, std::span<uint8_t> encoded, const std::string& codec);
  // Runs an all-reduce with this rank's encoded contribution. The sum goes to `runs` or, if that is empty, to `data`.
  void run_encoded(void* data, size_t count, const char* strategy, const std::string& codec,
                   std::span<const uint8_t> encoded, std::span<uint8_t> runs);
  // Runs an all-reduce as `together` operations of about as many elements each. All are submitted before any is waited
  // for.
  void run_together(unsigned together, void* data, size_t count, const PerfType& type, const char* strategy,
                    const std::string& codec, gradlane_reduction reduction);
  // Starts an operation without waiting. The tensor belongs to the daemon until wait() has returned.
  [[nodiscard]] gradlane_request start(PerfOp op, void* data, size_t count, gradlane_type type, const char* strategy,
                                       const std::string& codec, gradlane_reduction reduction);
  void wait(PerfOp op, gradlane_request request);
  void barrier();
  // Returns the numbers of all ranks, in the order of ranks. All ranks must call it with equally many numbers, at most
  // kMaxGathered.
  [[nodiscard]] std::vector<int64_t> gather(std::span<const int64_t> numbers);

  // Returns the number of bytes that this rank has sent in data packets since it connected.
  [[nodiscard]] uint64_t data_bytes();

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
