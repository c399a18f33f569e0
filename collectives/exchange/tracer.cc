// tracer.cc - the records of operations in a trace: times, hops, and ranks that they wait for (lane's thread)
#include "collectives/exchange/tracer.h"

namespace gradlane {

bool Tracer::follow(TraceLog& log, std::span<OperationState> operations, uint64_t session, Nanos now) noexcept {
  const bool on = log.on();
  if (on) log.set_now(now);
  if (on == (log_ != nullptr)) {
    if (!on && log.begun()) log.close(neighbours_);
    return on;
  }
  log_ = &log;
  for (const OperationState& it : operations) {
    if (it.state != OperationState::State::kWaiting && it.state != OperationState::State::kRunning) continue;
    if (!on) {
      ended(it, {}, TraceOperation::kOpen);
      continue;
    }
    if (!log_->begin(it.place, session, it.number)) continue;
    TraceOperation& record = *log_->operation(it.place);
    record.flags = TraceOperation::kCut;
    record.asked = record.gathered = record.submitted = now;
    if (it.state == OperationState::State::kRunning) record.started = now;
    if (it.state == OperationState::State::kRunning && it.prepared.ready) record.ready = now;
  }
  if (on) return true;
  log.close(neighbours_);
  log_ = nullptr;
  return false;
}

void Tracer::submitted(const OperationState& it, uint64_t session, unsigned missing, Nanos now) noexcept {
  if (!log_->begin(it.place, session, it.number)) return;
  TraceOperation& record = *log_->operation(it.place);
  record.asked = it.operation.asked != 0 ? it.operation.asked : now;
  record.gathered = it.operation.gathered != 0 ? it.operation.gathered : now;
  record.submitted = now;
  if (const auto last = it.operation.last_rank) record.flags |= (*last + uint64_t{1}) << 8;
  log_->wait(it.place, TraceCause::kRing, missing);
}

void Tracer::started(const OperationState& it, uint64_t session) noexcept {
  TraceOperation* const record = log_->operation(it.place);
  if (record == nullptr) return;
  // The ring may have become ready only now.
  record->session = session;
  if (record->started == 0) record->started = log_->now();
  if (it.prepared.ready) record->ready = log_->now();
}

void Tracer::ended(const OperationState& it, const Failure& failure, uint64_t flags) noexcept {
  TraceOperation* const record = log_->operation(it.place);
  if (record == nullptr) return;
  const Operation& op = it.operation;
  const size_t shares = has_shares(op.kind) ? it.world : 1;
  record->what = static_cast<uint64_t>(op.kind) | static_cast<uint64_t>(op.type) << 8 |
                 static_cast<uint64_t>(it.coder.codec_id()) << 16 |
                 static_cast<uint64_t>(it.coder.codec_param()) << 24 | static_cast<uint64_t>(failure.code) << 32;
  record->flags |= flags;
  record->bytes = op.count * shares * element_bytes(op.type);
  record->sent = it.outcome.sent_bytes;
  record->ended = log_->now();
  log_->end(it.place);
}

void Tracer::sent(const OperationState& it, Phase phase, unsigned block, size_t link, size_t bytes) noexcept {
  const bool all = link == neighbours_.size();
  const uint64_t flags =
      (phase == Phase::kGather ? uint64_t{TraceHop::kGather} : 0) | (all ? uint64_t{TraceHop::kToAll} : 0);
  const uint64_t to = all ? rank_ : neighbours_[link];
  log_->hop(it.place, block, flags | uint64_t{it.route.stage} << 8 | uint64_t{block} << 16 | to << 32, 1,
            all ? bytes / neighbours_.size() : bytes);
}

void Tracer::received(const OperationState& it, const RunHeader& run, bool in_turn, size_t link) noexcept {
  const bool sum = run.phase == Phase::kReduce;
  const uint64_t from = neighbours_[link];
  const uint64_t what = TraceHop::kIn | (sum ? 0 : uint64_t{TraceHop::kGather}) | uint64_t{it.route.stage} << 8 |
                        uint64_t{run.block} << 16 | from << 32;
  // A block may have runs from every rank, so its hops are recorded by rank.
  const bool by_rank = in_turn || delivers(it.route.kind);
  log_->hop(it.place, by_rank ? from : run.block, what, 1, sizeof(RunHeader) + run.bytes);
}

void Tracer::time(const OperationState& it, Nanos TraceOperation::*of, Nanos began) noexcept {
  if (began == 0) return;
  TraceOperation* const record = log_->operation(it.place);
  if (record != nullptr) record->*of += (log_->clock() - began) * TraceLog::kTimeEvery;
}

}  // namespace gradlane
