// tracer.h - the records of operations in a trace: times, hops, and ranks that they wait for (lane's thread)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "collectives/exchange/operation_state.h"
#include "collectives/failure.h"
#include "collectives/trace_log.h"
#include "collectives/wire.h"

namespace gradlane {

// Callers must check on() first, except for follow(), begins() and time().
class Tracer {
 public:
  // `neighbours`: ranks, indexed by link.
  Tracer(unsigned rank, std::span<const unsigned> neighbours) noexcept : rank_(rank), neighbours_(neighbours) {}

  [[nodiscard]] bool on() const noexcept { return log_ != nullptr; }

  // Starts or stops a trace as the log says. If there is a log, it is called before each poll. Returns whether a trace
  // is being taken. A new trace includes the operations that already wait or run.
  bool follow(TraceLog& log, std::span<OperationState> operations, uint64_t session, Nanos now) noexcept;

  // `missing`: the rank that the ring waits for.
  void submitted(const OperationState& it, uint64_t session, unsigned missing, Nanos now) noexcept;
  void started(const OperationState& it, uint64_t session) noexcept;
  void stage_ended(const OperationState& it) noexcept { log_->write_hops(it.place); }
  void ended(const OperationState& it, const Failure& failure, uint64_t flags = 0) noexcept;

  // Records a sent run of `bytes` bytes. `link`: the number of links if it went to all ranks.
  void sent(const OperationState& it, Phase phase, unsigned block, size_t link, size_t bytes) noexcept;
  void received(const OperationState& it, const RunHeader& run, bool in_turn, size_t link) noexcept;
  [[nodiscard]] bool records(const OperationState& it) const noexcept { return log_->operation(it.place) != nullptr; }
  void waits(const OperationState& it, TraceCause cause, unsigned rank) noexcept { log_->wait(it.place, cause, rank); }

  // Returns the time if the work that begins now is to be timed, else 0. With 0, time() does nothing.
  [[nodiscard]] Nanos begins() const noexcept { return log_ != nullptr && log_->times() ? log_->clock() : 0; }
  void time(const OperationState& it, Nanos TraceOperation::*of, Nanos began) noexcept;

 private:
  const unsigned rank_;
  const std::span<const unsigned> neighbours_;
  TraceLog* log_ = nullptr;  // log of the present trace; null: no trace is being taken
};

}  // namespace gradlane
