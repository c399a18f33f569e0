// lifecycle.cc - the life of operations: their start, stages and end, also at the end of a session (lane's thread)
#include "collectives/exchange/lifecycle.h"

#include <algorithm>

#include "base/stream_copy.h"
#include "collectives/exchange/egress.h"
#include "collectives/exchange/peers.h"
#include "collectives/exchange/poll_budget.h"
#include "collectives/exchange/tracer.h"
#include "collectives/mismatch.h"

namespace gradlane {
namespace {

// Time from an operation's start until it is announced to all neighbours. It may then be waiting for a rank whose
// trainer has gone, and which does not know that it is awaited. At first an operation is announced only to the
// predecessor and to the ranks that must send something.
constexpr Nanos kTellAll = 5 * kMillisecond;

}  // namespace

// ---- Starting.

void Lifecycle::start_waiting(Nanos now) noexcept {
  if (!membership_.ready()) return;
  while (table_.any_waiting()) start(table_.start_next(), now);
}

void Lifecycle::start(OperationState& it, Nanos now) noexcept {
  const Operation& op = it.operation;
  preparation_.begin(it);
  const size_t granule = it.coder.granule();
  const bool few = (op.count + granule - 1) / granule < parts_.config.world && !has_shares(op.kind);
  it.route = {.kind = op.kind,
              .root = op.root,
              .rotation = few && it.strategy->rotates() ? it.number % parts_.config.world : 0,
              .stage = 0};
  it.algorithm = &algorithm_of(it);
  it.notices.start.reset();
  if (parts_.topology.ring_links() != 0) it.notices.start.set(parts_.topology.predecessor());
  begin_stage(it);
  // The start is announced now to the ranks that send in a later stage. If they fail before that stage, they can send
  // an abort: aborts go only to ranks that have announced the operation.
  for (RouteKey later = it.route; later.stage + 1 < it.strategy->stages(op.kind);) {
    ++later.stage;
    it.notices.start |= it.strategy->sources(later);
  }
  if (it.prepared.ready) preparation_.sample_loss_of(it);
  it.state = OperationState::State::kRunning;
  if (op.timeout == 0) it.times.deadline = now + parts_.config.operation_timeout;
  it.times.tell_all = now + kTellAll;
  note_deadline(it);
  if (parts_.tracer.on()) parts_.tracer.started(it, membership_.session());
  const unsigned senders = it.strategy->senders();
  if (senders > 1) ++sharing_;
  if (!parts_.egress.allows_for(senders, it.blocks.blocks())) share_links();

  if (fail_if_found(it)) return;  // it was aborted while it waited
  for (size_t link = 0; link < parts_.topology.links() && it.state == OperationState::State::kRunning; ++link) {
    if (const auto* const theirs = parts_.peers.start_of(link, it)) compare(it, link, theirs->descriptor);
  }
}

void Lifecycle::begin_stage(OperationState& it) noexcept {
  const Operation& op = it.operation;
  const size_t granule = it.coder.granule();
  const Division division = it.strategy->division(it.route);
  it.base = 0;
  if (has_shares(op.kind)) {
    it.blocks = Blocks::equal(division.blocks, op.count, granule, op.pitch != 0 ? op.pitch : op.count);
  } else {
    const Blocks shares = Blocks::spread(division.shares, op.count, granule);
    it.base = shares.offset(division.share);
    it.blocks = Blocks::spread(division.blocks, shares.count(division.share), granule);
  }
  it.final_stage = it.last_stage();
  it.streams = it.world > 1 && it.tensor_bytes() >= parts_.config.stream_bytes;
  it.offer = std::max({16 * granule, it.coder.cut(), it.result_coder.cut()});
  it.algorithm->begin();
}

// Divides queues among the ranks that send to the same rank, for the operations that run now.
void Lifecycle::share_links() noexcept {
  unsigned senders = 1;
  unsigned blocks = 1;
  for (const OperationState& it : table_.all()) {
    if (it.state != OperationState::State::kRunning) continue;
    senders = std::max(senders, it.strategy->senders());
    blocks = std::max(blocks, it.blocks.blocks());
  }
  parts_.egress.share(senders, blocks);
}

void Lifecycle::compare(OperationState& it, size_t link, const Descriptor& theirs) noexcept {
  const Failure failure = mismatch(it.descriptor, theirs, static_cast<uint16_t>(parts_.topology.rank_at(link)));
  if (failure) fail_everywhere(it, failure, parts_.config.rank);
}

// ---- Ending.

void Lifecycle::end_if_done(OperationState& it) noexcept {
  if (fail_if_found(it) || it.state != OperationState::State::kRunning || !it.algorithm->done()) return;
  if (!it.last_stage()) {
    if (parts_.tracer.on()) parts_.tracer.stage_ended(it);
    ++it.route.stage;
    begin_stage(it);
    parts_.budget.ask_again();
    return;
  }
  // The operation ends only when the successor has started it. Only then does a rank that has nothing to send know
  // whether the successor means the same operation.
  const Step next = ring_.failure(parts_.config.rank);
  if (!next.send || parts_.peers.started(next.link, it)) end(it, {});
}

void Lifecycle::end(OperationState& it, const Failure& failure) noexcept {
  const bool runs = it.state == OperationState::State::kRunning;
  if (it.streams) stream_fence();
  // An operation that is not ready yet has not changed its residual. Other exchanges may still read that residual, on
  // threads of their own.
  it.outcome.residual_cleared = failure && runs && it.prepared.ready && it.operation.residual != nullptr;
  if (it.outcome.residual_cleared) it.clear_residual();
  it.note_scanned();
  if (runs) {
    it.algorithm->end();
    if (it.strategy->senders() > 1) --sharing_;
  }
  if (parts_.tracer.on()) parts_.tracer.ended(it, failure);
  it.outcome.failure = failure;
  table_.finish(it);
  if (!table_.any_active() || (sharing_ == 0 && parts_.egress.is_shared())) share_links();
  if (failure) note(failure);
  parts_.counters.add(failure ? Counter::kOperationsFailed : Counter::kOperationsDone);
  if (!failure) {
    const auto kind = static_cast<size_t>(it.operation.strategy.value_or(StrategyId{}).kind);
    operation_times_[kind].add(now_ - std::min(now_, it.times.submitted));
  }
  if (!table_.any_active()) operations_at_ = kNever;  // otherwise check_deadlines() updates it
}

void Lifecycle::note(const Failure& failure) noexcept {
  if (failed_ && failed_ != failure) {
    std::ranges::move_backward(past_failures_.begin(), past_failures_.end() - 1, past_failures_.end());
    past_failures_.front() = {failed_, parts_.counters[Counter::kOperationsFailed]};
  }
  failed_ = failure;
}

bool Lifecycle::fail_if_found(OperationState& it) noexcept {
  const bool found = it.state == OperationState::State::kRunning && it.outcome.failure;
  if (found) fail_everywhere(it, it.outcome.failure, parts_.config.rank);
  return found;
}

void Lifecycle::fail_everywhere(OperationState& it, const Failure& failure, unsigned origin) noexcept {
  end(it, failure);
  it.notices.origin = static_cast<uint8_t>(origin);
  // After a mismatch no rank can have finished the operation, so the abort that travels around the ring reaches all.
  const bool tells =
      failure.code != FailureCode::kMismatch && it.algorithm->tells_dependents(origin == parts_.config.rank);
  it.notices.failure = tells ? it.strategy->dependents(it.route) : LinkSet{};
  if (const Step step = ring_.failure(origin); step.send) it.notices.failure.set(step.link);
}

void Lifecycle::abort(OperationState& it, Nanos polled_at) noexcept {
  const Failure failure{.code = FailureCode::kAborted, .rank = static_cast<uint16_t>(parts_.config.rank)};
  if (it.state == OperationState::State::kRunning) fail_everywhere(it, failure, parts_.config.rank);
  // A waiting operation keeps its number, and fails on all ranks when it starts.
  if (it.state == OperationState::State::kWaiting) {
    it.outcome.failure = failure;
    // If the ring does not become ready, the operation must not wait as long as the caller's timeout.
    it.times.deadline = std::min(it.times.deadline, polled_at + parts_.config.start_timeout);
    set_deadline();
  }
  parts_.budget.ask_again();
}

// ---- Times

void Lifecycle::note_deadline(const OperationState& it) noexcept {
  const Nanos tell_all = it.state == OperationState::State::kRunning ? it.times.tell_all : kNever;
  operations_at_ = std::min({operations_at_, it.times.deadline, tell_all});
}

void Lifecycle::set_deadline() noexcept {
  operations_at_ = kNever;
  for (const OperationState& it : table_.all()) {
    if (it.state == OperationState::State::kWaiting || it.state == OperationState::State::kRunning) note_deadline(it);
  }
}

void Lifecycle::check_deadlines(Nanos now) noexcept {
  if (table_.any_waiting() && !membership_.ready() && membership_.refused()) {
    // A person must resolve the difference, so all ranks must learn of it.
    handle(membership_.give_up(membership_.refused()));
    return;
  }
  if (now < operations_at_) return;
  for (OperationState& it : table_.all()) {
    if (it.state == OperationState::State::kRunning && now >= it.times.tell_all) tell_all(it);
    if (now < it.times.deadline) continue;
    if (it.state == OperationState::State::kWaiting) {
      fail_waiting(membership_.no_ring());
      return;
    }
    if (it.state == OperationState::State::kRunning) {
      const Nanos own = it.operation.timeout;
      const Failure failure{.code = FailureCode::kStuck,
                            .rank = static_cast<uint16_t>(awaited(it)),
                            .ours = own != 0 ? own : parts_.config.operation_timeout,
                            .theirs = own != 0 ? 0U : 1U};
      fail_everywhere(it, failure, parts_.config.rank);
    }
  }
  set_deadline();
}

void Lifecycle::tell_all(OperationState& it) noexcept {
  it.times.tell_all = kNever;
  for (size_t link = 0; link < parts_.topology.links(); ++link) {
    if (!parts_.peers.started(link, it)) it.notices.start.set(link);
  }
}

unsigned Lifecycle::awaited(const OperationState& it) const noexcept {
  if (parts_.topology.links() == 0 || (!it.prepared.ready && !it.prepared.local_offer)) return parts_.config.rank;
  return it.prepared.ready ? it.algorithm->awaited() : parts_.topology.rank_at(parts_.peers.unheard(it));
}

// ---- Sessions

// Fails all waiting operations, on this rank only: no other rank knows of them. The next operations are numbered from
// 0.
void Lifecycle::fail_waiting(const Failure& failure) noexcept {
  for (OperationState& it : table_.all()) {
    if (it.state != OperationState::State::kWaiting) continue;
    end(it, failure);
    OperationTable::release_if_read(it);
  }
  table_.restart_numbers();
}

void Lifecycle::handle(Membership::Event event) noexcept {
  if (event == Membership::Event::kNone) return;
  parts_.egress.reset();
  parts_.peers.reset();
  if (event == Membership::Event::kMerged) return;
  for (OperationState& it : table_.all()) {
    if (it.state == OperationState::State::kFree) continue;
    if (it.state != OperationState::State::kOver) end(it, membership_.cause());
    it.notices.start.reset();
    it.notices.failure.reset();
    OperationTable::release_if_read(it);
  }
  table_.restart_numbers();
  set_deadline();
}

}  // namespace gradlane
