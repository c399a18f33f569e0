// trainer_ops.h - the operations of one rank's trainers on one lane: from their rings to the exchange and back
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "config/config.h"
#include "dataplane/trainer/encode_piece.h"
#include "dataplane/trainer/failure_cause.h"
#include "dataplane/trainer/local_reduction.h"
#include "dataplane/trainer/mailbox.h"
#include "dataplane/trainer/trainer_job.h"
#include "dataplane/trainer/trainer_rings.h"

namespace gradlane {

// The operations of one rank's trainers on one lane. Worker thread only, except for the control channel. Each operation
// is made of one submission from each trainer, and has these states:
//
//   gathering   some trainers have not submitted it yet
//   summing     the trainers' elements are added up, block by block, a piece in each poll: into the tensor that the
//               exchange works on, or into all trainers' tensors if nothing is left to exchange
//   summed      this lane has added up its share; if a codec scans the whole tensor, other lanes may not have yet
//   ready       it waits until the exchange has space for it
//   exchanging  the exchange works on it
//   copying     the result is copied to the other trainers, a piece in each poll
//
// If there is a single trainer, its jobs wait in no other states than `ready` and `exchanging`, except those of
// GL_ENCODE: `summing` then encodes a contribution for later operations, and the job ends without the exchange.
// Operations reach the exchange in the order in which they were submitted, even those that will fail, so that numbers
// agree on all ranks.
//
// When a generation of the ring ends, numbers begin at 0 with the operations that ranks submit next. A trainer that
// does not know of the end yet may submit an operation that belongs to the old count. No other rank would run it. So
// each trainer with operations in the generation must learn of its end first. Until then, what it submits
// (gl_submission's ends_seen is behind) fails at once with the cause of the end, and gets no number. A trainer that had
// nothing in flight may learn of the end only by such a failure.
class TrainerOps {
 public:
  TrainerOps(const TrainerOpsSetup& setup, Exchange& exchange, ControlChannel& channel);
  TrainerOps(const TrainerOps&) = delete;
  TrainerOps& operator=(const TrainerOps&) = delete;

  // Handles commands, submissions and sums. Call it before the exchange is polled. Returns true if anything moved.
  bool submit(Nanos now) noexcept;
  // Handles ended operations, copies and completions. Call it after the exchange is polled. Returns true if anything
  // moved.
  bool complete(Nanos now) noexcept;

  [[nodiscard]] bool in_flight() const noexcept { return jobs_begun_ != jobs_over_; }
  // Prepares for sleep. Returns false if there is something to do: then the worker must not sleep.
  [[nodiscard]] bool fall_asleep() noexcept;
  void wake_up() noexcept;

 private:
  using Job = TrainerJob;
  using Part = TrainerJob::Part;
  // by trainer: whether an end of a generation was counted for it
  using Informed = std::array<bool, kMaxTrainers>;

  Job& job(uint64_t number) noexcept { return jobs_[number % jobs_.size()]; }
  [[nodiscard]] bool shares_buffer() const noexcept { return setup_.trainers > 1; }
  [[nodiscard]] unsigned rank_of(unsigned trainer) const noexcept { return setup_.first_rank + trainer; }

  // ---- trainer_ops.cc
  bool execute(Command& command) noexcept;
  void begin_detach(Command& command) noexcept;
  void finish_commands() noexcept;
  bool read_submission(unsigned trainer, Nanos now) noexcept;
  [[nodiscard]] Job* begin(uint64_t number, Nanos now) noexcept;
  void cancel(unsigned trainer, uint64_t cookie) noexcept;
  void resume(unsigned trainer) noexcept;
  bool hand_over(Nanos now) noexcept;
  [[nodiscard]] bool ready(Job& job, Nanos now) noexcept;
  void drop_encodings() noexcept;
  [[nodiscard]] bool prepare_piece(Job& job) noexcept;
  [[nodiscard]] bool submit_job(Job& job, Nanos now) noexcept;
  void give_up() noexcept;
  void note_cancel(Job& job, unsigned trainer) const noexcept;
  [[nodiscard]] FailureCause why_incomplete(const Job& job) const noexcept;
  void count_awaited(Nanos now) noexcept;
  [[nodiscard]] bool read_completions() noexcept;
  void end(Job& job, const Completion& completion) noexcept;
  void finish(Job& job, const FailureCause& failure) noexcept;
  [[nodiscard]] TrainerRings::End end_of(const Job& job, unsigned trainer) const noexcept {
    return {.residual_cleared = job.completion.residual_cleared,
            .tells_end = job.parts[trainer].ends != ends_[trainer].count,
            .sent_bytes = job.completion.sent_bytes,
            .loss = job.completion.loss,
            .begun = job.begun_at,
            .ended = now_};
  }
  void fail_waiting(const FailureCause& failure) noexcept;
  [[nodiscard]] bool exchanging() const noexcept;  // whether the exchange has operations of this rank
  [[nodiscard]] bool uses(unsigned trainer, unsigned segment) const noexcept;

  // ---- trainer_ops_generations.cc
  [[nodiscard]] bool generation_has_ended() const noexcept;  // whether it has ended, but no trainer was told
  void follow_generation() noexcept;
  void close(const char* why) noexcept;
  void end_generation(const FailureCause& failure) noexcept;
  Informed count_end() noexcept;
  void tell(unsigned trainer) noexcept;
  void drop_behind(Informed told) noexcept;
  [[nodiscard]] bool unaware(unsigned trainer, const Submission& submission) const noexcept;
  void reject(unsigned trainer, const Submission& submission) noexcept;
  void announce_since(const Job& job) noexcept;
  [[nodiscard]] bool missed() const noexcept;

  // ---- trainer_ops_scans.cc: codecs that scan the whole tensor
  [[nodiscard]] ScanBarrier::Entry* looks_of(unsigned trainer, const Submission& submission) const noexcept;
  void leave(ScanBarrier::Entry* looks, bool summed, bool given) noexcept;
  [[nodiscard]] bool all_summed(Job& job) noexcept;

  const TrainerOpsSetup setup_;
  Exchange& exchange_;
  ControlChannel& channel_;
  LocalReduction local_;
  std::array<TrainerRings, kMaxTrainers> rings_;
  std::array<uint64_t, kMaxTrainers> next_job_{};  // number of each trainer's next job
  std::vector<Job> jobs_;                          // jobs by number modulo jobs_.size()
  uint64_t jobs_begun_ = 0;                        // jobs with smaller numbers have begun
  uint64_t jobs_submitted_ = 0;  // jobs with smaller numbers have been given to the exchange, or have failed
  uint64_t jobs_over_ = 0;       // jobs with smaller numbers are over
  std::array<bool, kMaxTrainers> leaving_{};
  std::array<bool, kMaxTrainers> restarted_{};  // the trainer has attached or resumed, and has submitted nothing since
  struct Ends {                                 // ends of generations, for one trainer
    bool took_part = false;  // the exchange got an operation of this trainer in the current generation
    uint32_t count = 0;      // number of ended generations in which it took part
    uint32_t known = 0;      // value of `count` when the trainer last resumed
  };
  std::array<Ends, kMaxTrainers> ends_{};
  std::array<uint32_t, kMaxTrainers> since_{};  // generation of each trainer's first success; 0: none yet
  uint32_t generation_ = 0;                     // generation of the exchange when follow_generation() ran last
  uint32_t took_part_ = 0;  // latest generation in which the exchange had an operation of this rank; 0: none
  FailureCause why_ended_;  // cause of the latest end of a generation
  unsigned attached_ = 0;
  std::vector<Command*> waiting_;  // detach and remove commands that are not done
  bool failed_ = false;            // the operation that ended latest has failed
  bool timed_out_ = false;         // an operation has timed out since the last resume
  bool departed_ = false;          // a trainer has gone, and not all trainers are attached again
  unsigned gone_ = 0;              // the trainer that went last
  bool gave_up_ = false;           // the generation was ended because that trainer had gone
  Nanos published_at_ = 0;
  Nanos awaited_at_ = 0;  // time of the latest count_awaited()
  Nanos now_ = 0;         // time of the latest complete()
};

}  // namespace gradlane
