// trainer_ops.h - the operations of one rank's trainers on one lane: from their rings to the exchange and back
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "config/config.h"
#include "dataplane/trainer/failure_cause.h"
#include "dataplane/trainer/local_reduction.h"
#include "dataplane/trainer/mailbox.h"
#include "dataplane/trainer/trainer_job.h"
#include "dataplane/trainer/trainer_rings.h"

namespace gradlane {

// Worker thread only, but for the desk. One operation after the other is made of one submission of each trainer:
//
//   gathering   some trainers have not submitted it yet
//   summing     their elements are added up, block by block, a piece in each poll: into the tensor that the exchange
//               works on, or, where nothing is left to exchange, into all of them
//   summed      where a codec looks at the whole of it, on all lanes: others still add up
//   ready       for the exchange, as soon as that has room
//   exchanging  the exchange has it
//   copying     the result goes to the other trainers, a piece in each poll
//
// With one trainer the first three and the last are nothing. Operations reach the exchange in the order in which they
// were submitted, whatever becomes of them, so that numbers agree on all ranks.
//
// When a generation of the ring ends, numbers begin at 0 with what ranks submit next. That must not be what a trainer
// submitted before it was told: it belongs to the old count, and nobody else may run it. So each trainer that had
// something in the generation must be told first. What it submits until then (gl_submission's ends_seen is behind)
// fails at once, with the cause of the end, and gets no number. That may be all that tells it: it had nothing in
// flight.
class TrainerOps {
 public:
  TrainerOps(const TrainerOpsSetup& setup, Exchange& exchange, LaneDesk& desk);
  TrainerOps(const TrainerOps&) = delete;
  TrainerOps& operator=(const TrainerOps&) = delete;

  // Before the exchange is polled: commands, submissions, sums. True if anything moved.
  bool submit(Nanos now) noexcept;
  // After that: what has ended, copies, completions. True if anything moved.
  bool complete(Nanos now) noexcept;

  [[nodiscard]] bool in_flight() const noexcept { return jobs_begun_ != jobs_over_; }
  // Before the worker sleeps; false: there is something to do, do not.
  [[nodiscard]] bool fall_asleep() noexcept;
  void wake_up() noexcept;

 private:
  using Job = TrainerJob;
  using Part = TrainerJob::Part;
  using Told = std::array<bool, kMaxTrainers>;  // of the end of a generation, or will be by its next submission

  Job& job(uint64_t number) noexcept { return jobs_[number % jobs_.size()]; }
  [[nodiscard]] bool shares_buffer() const noexcept { return setup_.trainers > 1; }
  [[nodiscard]] unsigned rank_of(unsigned trainer) const noexcept { return setup_.first_rank + trainer; }

  // ---- trainer_ops.cc
  bool obey(Command& command) noexcept;
  void begin_detach(Command& command) noexcept;
  void finish_commands() noexcept;
  bool read_submission(unsigned trainer, Nanos now) noexcept;
  [[nodiscard]] Job* begin(uint64_t number, Nanos now) noexcept;
  void cancel(unsigned trainer, uint64_t cookie) noexcept;
  void resume(unsigned trainer) noexcept;
  bool hand_over(Nanos now) noexcept;
  [[nodiscard]] bool ready(Job& job, Nanos now) noexcept;
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
  [[nodiscard]] bool exchanging() const noexcept;  // the exchange has operations of this rank
  [[nodiscard]] bool uses(unsigned trainer, unsigned segment) const noexcept;

  // ---- trainer_ops_generations.cc
  [[nodiscard]] bool generation_has_ended() const noexcept;  // and nobody was told
  void follow_generation() noexcept;
  void close(const char* why) noexcept;
  void break_off(const FailureCause& failure) noexcept;
  Told count_end() noexcept;
  void tell(unsigned trainer) noexcept;
  void drop_unaware(Told told) noexcept;
  [[nodiscard]] bool unaware(unsigned trainer, const Submission& submission) const noexcept;
  void reject(unsigned trainer, const Submission& submission) noexcept;
  void seek(const Job& job) noexcept;
  [[nodiscard]] bool missed() const noexcept;

  // ---- trainer_ops_looks.cc: codecs that look at the whole of a tensor
  [[nodiscard]] LaneLooks::Entry* looks_of(unsigned trainer, const Submission& submission) const noexcept;
  void leave(LaneLooks::Entry* looks, bool summed, bool given) noexcept;
  [[nodiscard]] bool all_summed(Job& job) noexcept;

  const TrainerOpsSetup setup_;
  Exchange& exchange_;
  LaneDesk& desk_;
  LocalReduction local_;
  std::array<TrainerRings, kMaxTrainers> rings_;
  std::array<uint64_t, kMaxTrainers> next_job_{};  // of each trainer
  std::vector<Job> jobs_;                          // by number modulo their count
  uint64_t jobs_begun_ = 0;                        // numbers below this have been begun,
  uint64_t jobs_submitted_ = 0;                    //   have been given to the exchange,
  uint64_t jobs_over_ = 0;                         //   are over, and all before them
  std::array<bool, kMaxTrainers> leaving_{};
  std::array<bool, kMaxTrainers> afresh_{};  // has come, or resumed, and submitted nothing since
  struct Ends {                              // of generations
    bool took_part = false;                  // something of this trainer's was given to the exchange in this one
    uint32_t count = 0;                      // of those that it took part in
    uint32_t known = 0;                      // it has resumed when there were so many
  };
  std::array<Ends, kMaxTrainers> ends_{};
  std::array<uint32_t, kMaxTrainers> since_{};  // generation of the first operation that went well; 0: none yet
  uint32_t generation_ = 0;                     // the exchange's, when follow_generation() ran last
  uint32_t took_part_ = 0;  // the last generation in which the exchange had something of this rank; 0: none
  FailureCause why_ended_;  // the last one
  unsigned attached_ = 0;
  std::vector<Command*> waiting_;  // detach and remove commands that are not done
  bool failed_ = false;            // the last operation that ended
  bool stuck_ = false;             // one was given up here alone since the last resume
  bool departed_ = false;          // a trainer has gone, and not all are there again
  unsigned gone_ = 0;              // the last one that did
  bool gave_up_ = false;           // the generation, since it has gone
  Nanos published_at_ = 0;
  Nanos awaited_at_ = 0;  // the latest count_awaited()
  Nanos now_ = 0;         // of the latest complete()
};

}  // namespace gradlane
