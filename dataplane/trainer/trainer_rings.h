// trainer_rings.h - one trainer as one lane sees it: rings in shared memory, segments, faults (worker thread only)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "client/abi.h"
#include "client/gradlane.h"
#include "collectives/counters.h"
#include "collectives/operation.h"
#include "dataplane/trainer/failure_cause.h"
#include "dataplane/trainer/mailbox.h"

namespace gradlane {

// Limits that every submission is checked against.
struct SubmissionLimits {
  unsigned world = 1;    // ranks that trainers see
  size_t max_bytes = 0;  // most bytes of a tensor
  bool local_reduce = false;
  Codec codec = find_codec(kDefaultCodec);  // codec of operations that name none
  // Strategies that operations may name. The ring is always allowed, too. The first strategy is for operations that
  // name none.
  std::vector<StrategyId> strategies = {StrategyId{}};
  unsigned ranks = 1;  // ranks of the exchange: nodes, if trainers reduce locally
  bool links = true;   // whether all ranks have links to all others: links_all()
};

// A submission that has been checked. Nothing of it is read from shared memory again.
struct Submission {
  uint64_t cookie = 0;
  bool resume = false;                 // request to start again (gradlane_resume); no operation
  bool cancel = false;                 // request to cancel the operation with this cookie; no operation
  bool cancelled = false;              // this operation was cancelled before it begins
  Operation operation;                 // data and residual point into segments; `whole` is not set
  unsigned segment = GL_MAX_SEGMENTS;  // segment of the data; GL_MAX_SEGMENTS: none
  // segment of the residual, of an all-to-all's output, or of the encoded contribution
  unsigned residual_segment = GL_MAX_SEGMENTS;
  bool encodes = false;  // GL_ENCODE: encodes operation.encoded, and no other rank takes part
  // Segment and buffer of the result as encoded runs (gradlane_lane_runs); null: the result is floats. Each lane has a
  // part of the buffer.
  unsigned runs_segment = GL_MAX_SEGMENTS;
  uint8_t* runs = nullptr;
  unsigned slot = 0;       // slot as in gl_submission
  uint32_t ends_seen = 0;  // ended generations that this trainer knows of (gl_lane's `ends`)
};

// The rings and segments of one trainer. Worker thread only, between attach() and detach(). The trainer may write
// anything anywhere in its memory at any time. So each field is read once, and the copy is checked.
class TrainerRings {
 public:
  [[nodiscard]] bool attached() const noexcept { return lane_ != nullptr; }
  void attach(const Command& command, const Counters& counters) noexcept;
  void detach() noexcept;

  void add_segment(unsigned number, uint8_t* base, size_t bytes) noexcept { segments_[number] = {base, bytes}; }
  void remove_segment(unsigned number) noexcept { segments_[number] = {}; }

  // Returns the next submission, if there is one, the trainer has no fault, and the ring has space for its completion
  // (cancel and resume have no completion). A bad submission is a fault, which is reported once.
  [[nodiscard]] std::optional<Submission> next(const SubmissionLimits& limits, FaultReport& report) noexcept;

  // The end of an operation, without the cause of a failure.
  struct End {
    bool residual_cleared = false;
    bool tells_end = false;  // as in gl_completion
    uint64_t sent_bytes = 0;
    Loss loss = {};
    Nanos begun = 0;  // times at which the lane began and finished the operation; 0 and 0: it never began
    Nanos ended = 0;
  };
  // Writes the completion of a submission that next() returned. The ring always has space for it.
  void complete(uint64_t cookie, const FailureCause& failure, const End& end) noexcept;
  void publish_ends(uint32_t ends) noexcept;  // call it before the completions that report the latest end
  // Wakes the trainer if it waits and something was completed since the last call. `more`: further completions may
  // follow at once. Then a trainer with operations in flight is woken only after several completions, or 50 us.
  void notify(bool more, Nanos now) noexcept;

  // Prepares for sleep. Returns false if there are submissions: then the worker must not sleep. Submissions can wait if
  // the ring has no space for their completions: a trainer that does not read must not keep the worker awake.
  [[nodiscard]] bool fall_asleep() noexcept;
  void wake_up() noexcept;

  void publish(const Counters& counters) noexcept;  // publishes figures

 private:
  struct Segment {
    uint8_t* base = nullptr;
    size_t bytes = 0;
  };

  [[nodiscard]] bool fault(FaultReport& report, TrainerFault fault, uint64_t a = 0, uint64_t b = 0,
                           uint64_t c = 0) noexcept;
  [[nodiscard]] bool check(const gl_submission& entry, const SubmissionLimits& limits, Submission& result,
                           FaultReport& report) noexcept;
  [[nodiscard]] bool check_out(const gl_submission& entry, size_t bytes, Submission& result,
                               FaultReport& report) noexcept;
  [[nodiscard]] bool check_encoded(const gl_submission& entry, const SubmissionLimits& limits, Submission& result,
                                   FaultReport& report) noexcept;
  [[nodiscard]] bool check_runs(const gl_submission& entry, const SubmissionLimits& limits, Submission& result,
                                FaultReport& report) noexcept;
  [[nodiscard]] bool check_residual(const gl_submission& entry, size_t bytes, unsigned states, Submission& result,
                                    FaultReport& report) noexcept;
  [[nodiscard]] bool locate(uint32_t segment, uint64_t offset, size_t bytes, uint8_t*& place,
                            FaultReport& report) noexcept;

  gl_control* control_ = nullptr;
  gl_lane* lane_ = nullptr;
  int completion_fd_ = -1;
  std::array<Segment, GL_MAX_SEGMENTS> segments_{};
  // The lane's own counts. Shared memory has copies of them.
  uint32_t submit_head_ = 0;
  uint32_t complete_tail_ = 0;
  uint32_t open_ = 0;  // operations that were taken and are not completed
  bool faulty_ = false;
  bool completed_ = false;
  Nanos held_since_ = 0;  // time of the oldest completion that the trainer was not woken for; 0: none
  uint64_t beats_ = 0;
  struct Base {
    uint64_t data_bytes = 0, data_packets = 0, retransmitted = 0;
  };
  static Base figures(const Counters& counters) noexcept;
  Base base_;
};

}  // namespace gradlane
