// trainer_ops_generations.cc - the end of a generation of the ring: each trainer learns of it before it takes part in
// the next one (worker thread only)
#include <algorithm>
#include <string_view>

#include "dataplane/trainer/trainer_ops.h"

namespace gradlane {
namespace {

constexpr std::string_view kUnaware = " (it was submitted before that was known)";

}  // namespace

bool TrainerOps::generation_has_ended() const noexcept {
  return exchange_.none_submitted() && std::ranges::any_of(ends_, &Ends::took_part);
}

// Follows the exchange into a new generation. An operation that was submitted before the ring was ready may run in a
// later generation.
void TrainerOps::follow_generation() noexcept {
  if (exchange_.generation() == generation_) return;
  generation_ = exchange_.generation();
  for (Job& it : jobs_) {
    if (it.state == Job::State::kExchanging) it.generation = took_part_ = generation_;
  }
}

void TrainerOps::tell(unsigned trainer) noexcept {
  ends_[trainer].took_part = false;
  rings_[trainer].publish_ends(++ends_[trainer].count);
}

// Counts the end of the generation for each trainer that took part. It must run before the completions that report the
// end are written.
TrainerOps::Informed TrainerOps::count_end() noexcept {
  Informed told{};
  for (unsigned i = 0; i < setup_.trainers; ++i) {
    told[i] = ends_[i].took_part;
    if (told[i]) tell(i);
  }
  why_ended_ = cause_of(exchange_.ring_status().ended);
  return told;
}

// Fails jobs that trainers had submitted without knowing of the end. These jobs waited for space in the exchange, or
// for other trainers to submit them.
void TrainerOps::drop_behind(Informed told) noexcept {
  for (uint64_t number = jobs_submitted_; number != jobs_begun_; ++number) {
    Job& it = job(number);
    bool drop = false;
    for (unsigned i = 0; i < setup_.trainers; ++i) drop |= told[i] && it.parts[i].submitted;
    if (!drop || it.state == Job::State::kFree) continue;
    for (unsigned i = 0; i < setup_.trainers; ++i) {
      if (it.parts[i].submitted && !told[i]) tell(i);
      told[i] |= it.parts[i].submitted;
    }
    finish(it, why_ended_);
  }
  while (jobs_submitted_ != jobs_begun_ && job(jobs_submitted_).state == Job::State::kFree) ++jobs_submitted_;
  for (unsigned i = 0; i < setup_.trainers; ++i) {
    if (told[i] || restarted_[i]) next_job_[i] = jobs_submitted_;
  }
}

// Ends the generation, and fails the jobs that wait here.
void TrainerOps::end_generation(const FailureCause& failure) noexcept {
  for (uint64_t number = jobs_submitted_; number != jobs_begun_; ++number) {
    const Job& it = job(number);
    if (it.state == Job::State::kFree) continue;
    for (unsigned i = 0; i < setup_.trainers; ++i) ends_[i].took_part |= it.parts[i].submitted;
  }
  exchange_.close();
  (void)count_end();
  fail_waiting(failure);
  (void)read_completions();
  next_job_.fill(jobs_submitted_);
  why_ended_ = failure;
}

// Ends the generation because the daemon ends. `why` says what has failed in this daemon. It replaces the cause that
// the exchange gives for operations in flight. It is null for a shutdown. Later submissions fail with the same cause.
// Other ranks learn only that this rank has left.
void TrainerOps::close(const char* why) noexcept {
  const FailureCause cause = daemon_ends(why);
  for (Job& it : jobs_) {
    if (why != nullptr && it.state == Job::State::kExchanging && it.failure.empty()) it.failure = cause;
  }
  end_generation(cause);
}

bool TrainerOps::unaware(unsigned trainer, const Submission& submission) const noexcept {
  const Ends& it = ends_[trainer];
  return static_cast<int32_t>(submission.ends_seen - it.count) < 0 && it.known != it.count;
}

// Makes the exchange tell other ranks that a trainer of this job took part in an earlier generation. If the trainer of
// another rank has gone since that generation, that rank ends the job. Nobody waits for its next trainer.
void TrainerOps::announce_since(const Job& it) noexcept {
  for (unsigned i = 0; i < setup_.trainers; ++i) {
    if (it.parts[i].submitted && since_[i] != 0 && since_[i] != it.generation) exchange_.announce_since(since_[i]);
  }
}

// Returns whether a trainer, here or on another rank, waits for a trainer of this rank that will not come back. The
// waiting trainer has taken part in a generation together with one that has gone from here, and must not wait for the
// next one. If this daemon was started after others had been in the ring, a trainer of the previous daemon has gone.
bool TrainerOps::missed() const noexcept {
  if (attached_ == setup_.trainers || !exchange_.none_submitted()) return false;
  const uint32_t first = exchange_.first_generation();
  const uint32_t until = took_part_ != 0 || first == 0 ? took_part_ : first - 1;
  if (exchange_.announced_since() != 0 && exchange_.announced_since() <= until) return true;
  for (uint64_t number = jobs_submitted_; number != jobs_begun_; ++number) {
    const Job& it = jobs_[number % jobs_.size()];
    for (unsigned i = 0; it.state != Job::State::kFree && i < setup_.trainers; ++i) {
      if (it.parts[i].submitted && since_[i] != 0 && since_[i] <= until) return true;
    }
  }
  return false;
}

void TrainerOps::reject(unsigned trainer, const Submission& submission) noexcept {
  leave(looks_of(trainer, submission), false, false);
  FailureCause why = why_ended_;
  if (why.text.size() + kUnaware.size() < GL_TEXT) why.text.add(kUnaware);
  rings_[trainer].complete(submission.cookie, why, {.tells_end = true});
}

}  // namespace gradlane
