// trainer_ops.cc - the life of a trainer's operation on one lane (worker thread only)
#include "dataplane/trainer/trainer_ops.h"

#include <algorithm>
#include <utility>

#include "dataplane/trainer/result_runs.h"

namespace gradlane {
namespace {

constexpr size_t kJobs = 4 * GL_SLOTS;  // more than a trainer can have open, because jobs end in any order
constexpr Nanos kPublish = 100 * kMillisecond;

}  // namespace

TrainerOps::TrainerOps(const TrainerOpsSetup& setup, Exchange& exchange, ControlChannel& channel)
    : setup_(setup), exchange_(exchange), channel_(channel), local_(setup_), jobs_(kJobs) {
  for (Job& job : jobs_) job.parts.resize(setup.trainers);
  waiting_.reserve(kMaxTrainers + GL_MAX_SEGMENTS);
}

bool TrainerOps::submit(Nanos now) noexcept {
  bool moved = generation_has_ended() && read_completions();
  follow_generation();
  while (Command* const command = channel_.mailbox.take()) moved |= execute(*command);
  for (unsigned trainer = 0; trainer < setup_.trainers; ++trainer) {
    // A flood of cancels must not keep others waiting.
    for (unsigned i = 0; i < GL_SLOTS && read_submission(trainer, now); ++i) moved = true;
  }
  moved |= hand_over(now);
  // Other ranks or trainers wait for an operation that a trainer which has gone will not submit. If this rank has
  // submitted nothing in this generation, they can wait for the next trainer, unless they have worked with the one that
  // has gone: missed().
  const bool awaited = !exchange_.none_submitted() && (exchange_.awaited() || jobs_submitted_ != jobs_begun_);
  if ((departed_ && awaited) || missed()) {
    give_up();
    moved = true;
  }
  return moved;
}

bool TrainerOps::complete(Nanos now) noexcept {
  now_ = now;
  bool ended = read_completions();
  bool moved = ended;
  if (shares_buffer()) {
    for (uint64_t number = jobs_over_; number != jobs_begun_; ++number) {
      Job& it = job(number);
      if (it.state != Job::State::kCopying) continue;
      if (local_.copy_piece(it)) {
        finish(it, kNoFailure);
        ended = true;
      }
      moved = true;
      break;
    }
  }
  if (!waiting_.empty()) finish_commands();
  if (moved || now >= published_at_ + kPublish) {
    published_at_ = now;
    count_awaited(now);
    for (unsigned i = 0; i < setup_.trainers; ++i) rings_[i].publish(exchange_.counters());
  }
  for (unsigned i = 0; i < setup_.trainers; ++i) rings_[i].notify(ended, now);
  return moved;
}

bool TrainerOps::fall_asleep() noexcept {
  bool may = true;
  for (unsigned i = 0; i < setup_.trainers; ++i) may &= rings_[i].fall_asleep();
  return may;
}

void TrainerOps::wake_up() noexcept {
  for (unsigned i = 0; i < setup_.trainers; ++i) rings_[i].wake_up();
}

// ---- Commands

bool TrainerOps::execute(Command& command) noexcept {
  const unsigned trainer = command.trainer - setup_.first_trainer;
  TrainerRings& rings = rings_[trainer];
  switch (command.kind) {
    case Command::Kind::kAttach:
      if (!exchange_.none_submitted()) end_generation(trainer_replaced(rank_of(trainer)));
      rings.attach(command, exchange_.counters());
      if (setup_.looks != nullptr && trainer == 0) setup_.looks->reset();
      ends_[trainer] = {};
      since_[trainer] = 0;
      next_job_[trainer] = jobs_submitted_;
      restarted_[trainer] = true;
      leaving_[trainer] = false;
      if (++attached_ == setup_.trainers) departed_ = false;
      break;
    case Command::Kind::kAddSegment:
      rings.add_segment(command.segment, command.base, command.bytes);
      break;
    case Command::Kind::kRemoveSegment:
      for (Job& it : jobs_) {
        const Part& part = it.parts[trainer];
        if (it.state == Job::State::kFree || !part.submitted) continue;
        if (part.uses(command.segment)) cancel(trainer, part.cookie);
      }
      rings.remove_segment(command.segment);
      waiting_.push_back(&command);
      return true;
    case Command::Kind::kDetach:
      begin_detach(command);
      waiting_.push_back(&command);
      return true;
    case Command::Kind::kEndGeneration:
      if (!gave_up_ && !exchange_.none_submitted()) give_up();
      break;
    case Command::Kind::kClose:
      close(command.why);
      break;
  }
  command.done.store(true, std::memory_order_release);
  return true;
}

// Begins to detach a trainer. An operation that is not over here can no longer succeed on any rank.
void TrainerOps::begin_detach(Command& command) noexcept {
  gone_ = command.trainer - setup_.first_trainer;
  leaving_[gone_] = true;
  departed_ = true;
  gave_up_ = false;
  --attached_;
  (void)read_completions();  // the other ranks may already have begun a new generation
  drop_encodings();
  // After a failure, other ranks may have submitted nothing in this generation yet, and take it for a fresh one.
  const bool uneven = failed_ && !exchange_.none_submitted();
  if (exchanging() || uneven || jobs_submitted_ != jobs_begun_) give_up();
}

// Ends the encodings of a trainer that has gone. No other rank waits for them.
void TrainerOps::drop_encodings() noexcept {
  for (uint64_t number = jobs_submitted_; number != jobs_begun_; ++number) {
    Job& it = job(number);
    if (it.state != Job::State::kFree && it.parts[0].encodes) finish(it, trainer_gone(rank_of(0)));
  }
  while (jobs_submitted_ != jobs_begun_ && job(jobs_submitted_).state == Job::State::kFree) ++jobs_submitted_;
}

void TrainerOps::give_up() noexcept {
  gave_up_ = true;
  const bool named = departed_ && shares_buffer();
  end_generation(trainer_gone(named ? std::optional<uint64_t>(rank_of(gone_)) : std::nullopt));
}

bool TrainerOps::exchanging() const noexcept {
  return std::ranges::any_of(jobs_, [](const Job& it) { return it.state == Job::State::kExchanging; });
}

bool TrainerOps::uses(unsigned trainer, unsigned segment) const noexcept {
  return std::ranges::any_of(jobs_, [=](const Job& it) {
    const Part& part = it.parts[trainer];
    if (it.state == Job::State::kFree || !part.submitted) return false;
    return segment == GL_MAX_SEGMENTS || part.uses(segment);
  });
}

void TrainerOps::finish_commands() noexcept {
  std::erase_if(waiting_, [this](Command* command) {
    const unsigned trainer = command->trainer - setup_.first_trainer;
    const bool detach = command->kind == Command::Kind::kDetach;
    if (uses(trainer, detach ? GL_MAX_SEGMENTS : command->segment)) return false;
    if (detach) rings_[trainer].detach();
    command->ended_generation = detach && gave_up_;
    command->done.store(true, std::memory_order_release);
    return true;
  });
}

// ---- From rings to jobs

bool TrainerOps::read_submission(unsigned trainer, Nanos now) noexcept {
  const uint64_t number = next_job_[trainer];
  if (leaving_[trainer] || number >= jobs_over_ + jobs_.size()) return false;
  const auto submission = rings_[trainer].next(setup_.limits, channel_.faults[setup_.first_trainer + trainer]);
  if (!submission) return false;
  if (submission->cancel) {
    cancel(trainer, submission->cookie);
    return true;
  }
  if (submission->resume) {
    resume(trainer);
    return true;
  }
  if (!submission->encodes && unaware(trainer, *submission)) {
    reject(trainer, *submission);
    return true;
  }
  next_job_[trainer] = number + 1;
  restarted_[trainer] = false;
  Job* const it = begin(number, now);
  if (it == nullptr) {
    leave(looks_of(trainer, *submission), false, false);
    rings_[trainer].complete(submission->cookie, failed_before(), {});
    return true;
  }
  count_awaited(now);
  if (submission->cancelled) note_cancel(*it, trainer);
  const Nanos timeout = submission->operation.timeout;
  if (timeout != 0) it->timeout = it->timeout != 0 ? std::min(it->timeout, timeout) : timeout;
  it->deadline = it->begun_at + (it->timeout != 0 ? it->timeout : setup_.operation_timeout);
  it->parts[trainer] = {true,
                        submission->cookie,
                        submission->segment,
                        submission->residual_segment,
                        submission->runs_segment,
                        submission->runs,
                        submission->operation,
                        submission->encodes};
  it->parts[trainer].ends = ends_[trainer].count;
  if (it->looks == nullptr) it->looks = looks_of(trainer, *submission);
  ++it->arrived;
  it->gathered_at = now;
  it->last = trainer;
  if (it->arrived > 1) local_.compare(*it, trainer);
  return true;
}

// Lets a trainer start again: its operations in flight fail. The ring begins a new generation if numbers may differ
// between ranks. They may differ if an operation is in flight here, which other ranks may not know of, or if one has
// timed out. All other failures are the same on all ranks. Other trainers of this node may have resumed before and
// submitted the next operation; that one stays.
void TrainerOps::resume(unsigned trainer) noexcept {
  (void)read_completions();
  for (uint64_t number = jobs_submitted_; number != jobs_begun_; ++number) {
    Job& it = job(number);
    if (it.state != Job::State::kFree && it.parts[trainer].submitted) finish(it, trainer_resumed(rank_of(trainer)));
  }
  if (!exchange_.none_submitted() && (exchanging() || timed_out_)) end_generation(trainer_resumed(rank_of(trainer)));
  timed_out_ = false;
  while (jobs_submitted_ != jobs_begun_ && job(jobs_submitted_).state == Job::State::kFree) ++jobs_submitted_;
  restarted_[trainer] = true;
  // `restarted_` includes trainers that had resumed before. They will not submit the operations that were dropped here.
  for (unsigned i = 0; i < setup_.trainers; ++i) {
    if (restarted_[i]) next_job_[i] = jobs_submitted_;
  }
  ends_[trainer].known = ends_[trainer].count;
  ends_[trainer].took_part = false;
}

// Returns the job with this number, and begins it if it is new. Returns null if it is already over for the other
// trainers.
TrainerOps::Job* TrainerOps::begin(uint64_t number, Nanos now) noexcept {
  Job& it = job(number);
  if (number != jobs_begun_) return number < jobs_over_ || it.state == Job::State::kFree ? nullptr : &it;
  ++jobs_begun_;
  it.state = Job::State::kGathering;
  it.arrived = 0;
  it.cancelled = false;
  it.failure.clear();
  it.begun_at = now;
  it.timeout = 0;
  it.looks = nullptr;
  it.alone = false;
  it.summed = it.given = false;
  for (Part& part : it.parts) part.submitted = false;
  channel_.in_flight.fetch_add(1, std::memory_order_relaxed);
  return &it;
}

void TrainerOps::cancel(unsigned trainer, uint64_t cookie) noexcept {
  for (uint64_t number = jobs_over_; number != jobs_begun_; ++number) {
    Job& it = job(number);
    const Part& part = it.parts[trainer];
    if (it.state == Job::State::kFree || !part.submitted || part.cookie != cookie) continue;
    note_cancel(it, trainer);
    if (it.state == Job::State::kExchanging) exchange_.abort(it.id);
  }
}

// ---- From jobs to the exchange

bool TrainerOps::hand_over(Nanos now) noexcept {
  bool moved = false;
  while (jobs_submitted_ != jobs_begun_) {
    Job& it = job(jobs_submitted_);
    if (it.state != Job::State::kFree) {  // else it has failed already
      if (it.state == Job::State::kSumming) moved = true;
      if (!ready(it, now) || !submit_job(it, now)) break;
    }
    count_awaited(now);
    ++jobs_submitted_;
    moved = true;
  }
  return moved;
}

// Advances a job. Returns whether the exchange may take it: all trainers have submitted it, and their elements are
// added up.
bool TrainerOps::ready(Job& it, Nanos now) noexcept {
  if (it.state == Job::State::kGathering) {
    if (it.arrived < setup_.trainers) {
      if (now < it.deadline && !it.cancelled) return false;
      it.failure = why_incomplete(it);
    }
    local_.begin(it);
    if (it.parts[0].encodes) {
      // One lane encodes, because the table says where each block begins.
      it.share = {0, setup_.lane == 0 ? it.parts[0].operation.count : 0};
      if (it.cancelled) it.failure = cancelled_by(rank_of(it.cancelled_by));
      if (it.share.count != 0) it.state = Job::State::kSumming;
    }
  }
  if (it.state == Job::State::kSumming && (!it.failure.empty() || prepare_piece(it))) it.state = Job::State::kSummed;
  if (it.state == Job::State::kSummed && all_summed(it)) it.state = Job::State::kReady;
  return it.state == Job::State::kReady;
}

// Adds or encodes a piece of this rank's contribution. Returns whether it was the last one.
bool TrainerOps::prepare_piece(Job& it) noexcept {
  return it.parts[0].encodes ? encode_piece(it, rank_of(0)) : local_.sum_piece(it);
}

void TrainerOps::note_cancel(Job& it, unsigned trainer) const noexcept {
  if (!it.cancelled) it.cancelled_by = trainer;
  it.cancelled = true;
}

// Adds the time since the last call to the awaited time of all trainers that the oldest operation waits for.
void TrainerOps::count_awaited(Nanos now) noexcept {
  const Nanos since = std::exchange(awaited_at_, now);
  if (!shares_buffer() || jobs_submitted_ == jobs_begun_) return;
  const Job& oldest = job(jobs_submitted_);
  if (oldest.state != Job::State::kGathering) return;
  const Nanos waited = now - std::max(since, oldest.begun_at);
  for (unsigned i = 0; i < setup_.trainers; ++i) {
    if (oldest.parts[i].submitted) continue;
    std::atomic<uint64_t>& sum = channel_.awaited_ns[setup_.first_trainer + i];
    sum.store(sum.load(std::memory_order_relaxed) + waited, std::memory_order_relaxed);
  }
}

// Returns why a job fails that not all trainers have submitted: it was cancelled, or it has waited too long for the
// ranks that the text names.
FailureCause TrainerOps::why_incomplete(const Job& it) const noexcept {
  if (it.cancelled) return cancelled_by(rank_of(it.cancelled_by));
  FailureCause why = {.cause = GRADLANE_CAUSE_CANCELLED, .text = {}};  // the cause on other nodes, too
  why.text.add("other trainers of this node have waited too long for rank ");
  const char* gap = "";
  for (unsigned i = 0; i < setup_.trainers; ++i) {
    if (it.parts[i].submitted) continue;
    why.text.add(gap).add(rank_of(i));
    gap = ", ";
  }
  return why;
}

bool TrainerOps::submit_job(Job& it, Nanos now) noexcept {
  if (it.parts[0].submitted && it.parts[0].encodes) {
    finish(it, it.failure);
    return true;
  }
  // A job that will fail is submitted with the operation of one of its trainers, because the exchange must accept it.
  if (!it.failure.empty()) {
    it.buffer = static_cast<unsigned>(std::ranges::find_if(it.parts, &Part::submitted) - it.parts.begin());
    it.share = local_.share(it.parts[it.buffer].operation);
  }
  Operation operation = it.parts[it.buffer].operation;
  operation.timeout = it.timeout;
  operation.asked = it.begun_at;
  operation.gathered = it.gathered_at;
  if (shares_buffer()) operation.last_rank = static_cast<uint16_t>(rank_of(it.last));
  if (operation.kind != OpKind::kBarrier) {
    const size_t width = element_bytes(operation.type);
    operation.whole = local_.length_of(operation);
    if (shares_buffer() && has_shares(operation.kind)) operation.pitch = operation.whole;
    operation.offset = it.share.first;
    operation.scans_left = it.looks != nullptr ? &it.looks->scans_left : nullptr;
    operation.count = it.share.count;
    if (operation.data != nullptr) operation.data = static_cast<uint8_t*>(operation.data) + it.share.first * width;
    if (operation.out != nullptr) operation.out = static_cast<uint8_t*>(operation.out) + it.share.first * width;
    if (operation.residual != nullptr) operation.residual += it.share.first;
    operation.encoded.first += it.share.first;
    if (it.parts[it.buffer].runs != nullptr) operation.runs = run_area(it.parts[it.buffer].runs, it.share);
    if (shares_buffer()) operation.root /= setup_.trainers;
    if (it.alone) operation.count = 0;  // the trainers already have the result
  }
  const auto submitted = exchange_.submit(operation, now);
  if (submitted.refusal == Exchange::Refusal::kFull) return false;
  if (submitted.refusal != Exchange::Refusal::kNone) {
    it.failure = {GRADLANE_CAUSE_OTHER, "the exchange refused the operation"};
    if (submitted.refusal == Exchange::Refusal::kPacket) it.failure.text = exchange_.packet_fault(operation).view();
    finish(it, it.failure);
    return true;
  }
  it.state = Job::State::kExchanging;
  it.given = true;
  it.id = submitted.id;
  it.generation = took_part_ = exchange_.generation();
  for (unsigned i = 0; i < setup_.trainers; ++i) ends_[i].took_part |= it.parts[i].submitted;
  announce_since(it);
  if (it.cancelled || !it.failure.empty()) exchange_.abort(it.id);
  return true;
}

// ---- Ending

bool TrainerOps::read_completions() noexcept {
  const bool ended = generation_has_ended();
  const Informed told = ended ? count_end() : Informed{};
  bool moved = ended;
  for (Completion completion; exchange_.next_completion(completion);) {
    uint64_t number = jobs_over_;
    const auto is = [&](const Job& it) { return it.state == Job::State::kExchanging && it.id == completion.id; };
    while (!is(job(number))) ++number;
    end(job(number), completion);
    if (ended && completion.failure.code == FailureCode::kNoRing) why_ended_ = cause_of(completion.failure);
    moved = true;
  }
  if (ended) drop_behind(told);
  return moved;
}

void TrainerOps::end(Job& it, const Completion& completion) noexcept {
  it.completion = completion;
  timed_out_ |= completion.failure.code == FailureCode::kStuck;
  if (completion.failure) {
    if (it.failure.empty()) {
      it.failure = cause_of(completion.failure);
      if (shares_buffer()) {
        it.failure.text.add(" (ranks of this ring are nodes, each with ").add(setup_.trainers).add(" trainers)");
      }
    }
    finish(it, it.failure);
    return;
  }
  if (it.parts[0].runs != nullptr) {
    write_lane_runs(it.parts[0].runs, setup_.lane, run_area(it.parts[0].runs, it.share), completion);
  }
  if (!shares_buffer() || it.share.count == 0 || it.alone) {
    finish(it, kNoFailure);
    return;
  }
  it.state = Job::State::kCopying;
  it.done = 0;
}

void TrainerOps::finish(Job& it, const FailureCause& failure) noexcept {
  leave(it.looks, it.summed, it.given);
  const bool exchanges = !it.parts[0].encodes;
  for (unsigned trainer = 0; trainer < setup_.trainers; ++trainer) {
    const Part& part = it.parts[trainer];
    if (!part.submitted) continue;
    rings_[trainer].complete(part.cookie, failure, end_of(it, trainer));
    if (failure.empty() && exchanges && since_[trainer] == 0) since_[trainer] = it.generation;
  }
  if (exchanges) failed_ = !failure.empty();
  it.state = Job::State::kFree;
  it.completion = {};
  channel_.in_flight.fetch_sub(1, std::memory_order_relaxed);
  while (jobs_over_ != jobs_begun_ && job(jobs_over_).state == Job::State::kFree) ++jobs_over_;
}

// Fails the jobs that were not given to the exchange.
void TrainerOps::fail_waiting(const FailureCause& failure) noexcept {
  for (uint64_t number = jobs_submitted_; number != jobs_begun_; ++number) {
    if (job(number).state != Job::State::kFree) finish(job(number), failure);
  }
  jobs_submitted_ = jobs_begun_;
}

}  // namespace gradlane
