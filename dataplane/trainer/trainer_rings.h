// trainer_rings.h - one trainer as one lane sees it: rings in shared memory, segments, what is wrong with them
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "client/abi.h"
#include "client/gradlane.h"
#include "collectives/counters.h"
#include "collectives/operation.h"
#include "dataplane/trainer/failure_cause.h"
#include "dataplane/trainer/mailbox.h"

namespace gradlane {

// What every submission is checked against.
struct SubmissionLimits {
  unsigned world = 1;    // ranks that trainers see
  size_t max_bytes = 0;  // of a tensor
  bool local_reduce = false;
  Codec codec = find_codec(kDefaultCodec);  // of operations that name none
  // That operations may name, beside the ring; the first is that of operations that name none.
  std::vector<StrategyId> strategies = {StrategyId{}};
  unsigned ranks = 1;  // of the exchange: nodes, where trainers reduce locally
  bool links = true;   // links_all() of these
};

// A submission that has been checked: nothing of it is read from shared memory again.
struct Submission {
  uint64_t cookie = 0;
  bool resume = false;                          // begin afresh; all else is unset
  bool cancel = false;                          // the operation with this cookie; all else is unset
  bool cancelled = false;                       // this one, before it begins
  Operation operation;                          // data and residual point into segments; `whole` is not set
  unsigned segment = GL_MAX_SEGMENTS;           // of the data; GL_MAX_SEGMENTS: none
  unsigned residual_segment = GL_MAX_SEGMENTS;  // or of an all-to-all's output
  unsigned slot = 0;                            // as gl_submission's
  uint32_t ends_seen = 0;                       // of generations that this trainer had something in (gl_lane)
};

// Worker thread only, between attach() and detach(). The trainer may write anything anywhere in its memory at any time:
// each field of it is read once, and checked after that.
class TrainerRings {
 public:
  [[nodiscard]] bool attached() const noexcept { return lane_ != nullptr; }
  void attach(const Command& command, const Counters& counters) noexcept;
  void detach() noexcept;

  void add_segment(unsigned number, uint8_t* base, size_t bytes) noexcept { segments_[number] = {base, bytes}; }
  void remove_segment(unsigned number) noexcept { segments_[number] = {}; }

  // The next submission, if there is one, its completion will have room (cancels have none), and the trainer has no
  // fault. A bad one is a fault, which is reported once.
  [[nodiscard]] std::optional<Submission> next(const SubmissionLimits& limits, FaultReport& report) noexcept;

  // How an operation has ended, beside why it failed.
  struct End {
    bool residual_cleared = false;
    bool tells_end = false;  // as gl_completion's
    uint64_t sent_bytes = 0;
    Loss loss = {};
    Nanos begun = 0;  // when the lane took it, and when it was through with it; 0, 0: not at all
    Nanos ended = 0;
  };
  // Says how a submission of next() ended; there is room.
  void complete(uint64_t cookie, const FailureCause& failure, const End& end) noexcept;
  void publish_ends(uint32_t ends) noexcept;  // before the completions that tell of the last one
  // Wakes the trainer if it waits and something was completed since the last call. `more` may follow at once: then one
  // that has others in flight sleeps on, until several are over, for 50 us at most.
  void notify(bool more, Nanos now) noexcept;

  // Before the worker sleeps; false: there are submissions, do not. Those that have no room for their completion can
  // wait: a trainer that does not read must not keep the worker awake.
  [[nodiscard]] bool fall_asleep() noexcept;
  void wake_up() noexcept;

  void publish(const Counters& counters) noexcept;  // figures

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
  [[nodiscard]] bool check_residual(const gl_submission& entry, size_t bytes, unsigned states, Submission& result,
                                    FaultReport& report) noexcept;
  [[nodiscard]] bool locate(uint32_t segment, uint64_t offset, size_t bytes, uint8_t*& place,
                            FaultReport& report) noexcept;

  gl_control* control_ = nullptr;
  gl_lane* lane_ = nullptr;
  int completion_fd_ = -1;
  std::array<Segment, GL_MAX_SEGMENTS> segments_{};
  // The lane's own counts; what is in shared memory is a copy.
  uint32_t submit_head_ = 0;
  uint32_t complete_tail_ = 0;
  uint32_t open_ = 0;  // taken and not completed
  bool faulty_ = false;
  bool completed_ = false;
  Nanos held_since_ = 0;  // the trainer has not been woken for what was completed then; 0: nothing is held back
  uint64_t beats_ = 0;
  struct Base {
    uint64_t data_bytes = 0, data_packets = 0, retransmitted = 0;
  };
  static Base figures(const Counters& counters) noexcept;
  Base base_;
};

}  // namespace gradlane
