// tracing.cc - what a trace says of operations: moments, hops, whom they wait for (worker thread; while one is taken)
#include "collectives/exchange/exchange_state.h"

namespace gradlane {

std::unique_ptr<TraceLog> ExchangeState::make_trace(size_t words, TraceLog::Clock clock) const {
  return std::make_unique<TraceLog>(table_.size(), config_.world, words, clock);
}

// What runs already is in it from now on.
bool ExchangeState::trace(TraceLog& log, Nanos now) noexcept {
  const bool on = log.on();
  if (on) log.set_now(now);
  if (on == (trace_ != nullptr)) {
    if (!on && log.begun()) log.close(topology_.neighbours());
    return on;
  }
  trace_ = &log;
  for (Running& it : table_) {
    if (it.state != Running::State::kWaiting && it.state != Running::State::kRunning) continue;
    if (!on) {
      trace_end(it, {}, TraceOperation::kOpen);
      continue;
    }
    if (!trace_->begin(place_of(it), membership_.session(), it.number)) continue;
    TraceOperation& record = *trace_->operation(place_of(it));
    record.flags = TraceOperation::kCut;
    record.asked = record.gathered = record.submitted = now;
    if (it.state == Running::State::kRunning) record.started = now;
    if (it.state == Running::State::kRunning && it.ready) record.ready = now;
  }
  if (on) return true;
  log.close(topology_.neighbours());
  trace_ = nullptr;
  return false;
}

void ExchangeState::trace_submitted(const Running& it, Nanos now) noexcept {
  const size_t place = place_of(it);
  if (!trace_->begin(place, membership_.session(), it.number)) return;
  TraceOperation& record = *trace_->operation(place);
  record.asked = it.operation.asked != 0 ? it.operation.asked : now;
  record.gathered = it.operation.gathered != 0 ? it.operation.gathered : now;
  record.submitted = now;
  if (const auto last = it.operation.last_rank) record.flags |= (*last + uint64_t{1}) << 8;
  trace_->wait(place, TraceCause::kRing, membership_.missing());
}

void ExchangeState::trace_started(const Running& it) noexcept {
  TraceOperation* const record = trace_->operation(place_of(it));
  if (record == nullptr) return;
  // The ring may have come up only now.
  record->session = membership_.session();
  if (record->started == 0) record->started = trace_->now();
  if (it.ready) record->ready = trace_->now();
}

void ExchangeState::trace_end(const Running& it, const Failure& failure, uint64_t flags) noexcept {
  TraceOperation* const record = trace_->operation(place_of(it));
  if (record == nullptr) return;
  const Operation& op = it.operation;
  const size_t shares = has_shares(op.kind) ? config_.world : 1;
  record->what = static_cast<uint64_t>(op.kind) | static_cast<uint64_t>(op.type) << 8 |
                 static_cast<uint64_t>(it.coder.codec_id()) << 16 |
                 static_cast<uint64_t>(it.coder.codec_param()) << 24 | static_cast<uint64_t>(failure.code) << 32;
  record->flags |= flags;
  record->bytes = op.count * shares * element_bytes(op.type);
  record->sent = it.sent_bytes;
  record->ended = trace_->now();
  trace_->end(place_of(it));
}

// ---- Hops

void ExchangeState::trace_out(const Running& it, Phase phase, unsigned block, size_t link, size_t bytes) noexcept {
  const bool all = link == links_.size();
  const uint64_t flags =
      (phase == Phase::kGather ? uint64_t{TraceHop::kGather} : 0) | (all ? uint64_t{TraceHop::kToAll} : 0);
  const uint64_t to = all ? config_.rank : links_[link].peer();
  trace_->hop(place_of(it), block, flags | uint64_t{it.task.stage} << 8 | uint64_t{block} << 16 | to << 32, 1,
              all ? bytes / links_.size() : bytes);
}

void ExchangeState::trace_in(const Run& run, size_t link, Nanos began) noexcept {
  const Running& it = *run.operation;
  const bool sum = run.header.phase == Phase::kReduce;
  const uint64_t from = links_[link].peer();
  const uint64_t what = TraceHop::kIn | (sum ? 0 : uint64_t{TraceHop::kGather}) | uint64_t{it.task.stage} << 8 |
                        uint64_t{run.header.block} << 16 | from << 32;
  // Of one block there may be something of every rank.
  const bool by_rank = run.step.in_turn || delivers(it.task.kind);
  trace_->hop(place_of(it), by_rank ? from : run.header.block, what, 1, sizeof(RunHeader) + run.header.bytes);
  if (began != 0) trace_time(it, sum ? &TraceOperation::add : &TraceOperation::decode, began);
}

void ExchangeState::trace_time(const Running& it, Nanos TraceOperation::*of, Nanos began) noexcept {
  TraceOperation* const record = trace_->operation(place_of(it));
  if (record != nullptr) record->*of += (trace_->clock() - began) * TraceLog::kTimeEvery;
}

// ---- Waits

// What is not over is unread.
void ExchangeState::trace_waits() noexcept {
  for (uint64_t id = read_; id != submitted_; ++id) {
    Running& it = table_[id % table_.size()];
    if (it.id != id) continue;
    if (it.state != Running::State::kWaiting && it.state != Running::State::kRunning) continue;
    if (trace_->operation(place_of(it)) == nullptr) continue;
    const Wait wait = wait_of(it);
    trace_->wait(place_of(it), wait.cause, wait.rank);
  }
}

ExchangeState::Wait ExchangeState::wait_of(Running& it) noexcept {
  if (it.state == Running::State::kWaiting) return {TraceCause::kRing, membership_.missing()};
  const Wait work{TraceCause::kWork, config_.rank};
  if (!it.ready) {
    const size_t link = it.bid ? unheard(it) : links_.size();
    return link != links_.size() ? Wait{TraceCause::kStart, links_[link].peer()}
                                 : Wait{TraceCause::kLook, config_.rank};
  }
  if (links_.empty()) return work;
  if (const auto step = next_to_send(it)) {
    if (!peer_takes(it, *step)) return {TraceCause::kStart, links_[step->link].peer()};
    return links_[step->link].can_send() ? work : Wait{TraceCause::kLink, links_[step->link].peer()};
  }
  if (it.sums_left != 0 || it.results_left != 0 || it.strategy->has_owners()) {
    const unsigned rank = it.strategy->has_owners() ? owed(it) : links_[it.from].peer();
    return {TraceCause::kPackets, rank};
  }
  return {TraceCause::kStart, awaited(it)};  // all is done: see end_if_done()
}

// What this rank could send now, if its neighbour and the way there take it.
std::optional<Step> ExchangeState::next_to_send(Running& it) noexcept {
  for (const Phase phase : {Phase::kReduce, Phase::kGather}) {
    Deferred& deferred = phase == Phase::kReduce ? it.room->partial : it.room->result;
    if (deferred.empty()) continue;
    const Step step = it.strategy->arrival(it.task, phase, deferred.next(1).block, it.from);
    return step.expected && step.send ? step
                                      : it.strategy->arrival(it.task, Phase::kReduce, deferred.next(1).block, it.from);
  }
  if (it.own_block != it.blocks.blocks()) {
    const Step step = it.strategy->start(it.task, it.own_block);
    if (step.send) return step;
  }
  if (!it.strategy->has_owners() || it.to_send == 0) return std::nullopt;
  for (unsigned block = 0; block < it.blocks.blocks(); ++block) {
    const Step step = it.strategy->start(it.task, block);
    if (step.send && it.sent[block] < it.limit[block]) return step;
  }
  return std::nullopt;
}

}  // namespace gradlane
