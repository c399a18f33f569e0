// tracer.h - what a trace says of operations: moments, hops, whom they wait for (lane's thread)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "collectives/exchange/running.h"
#include "collectives/failure.h"
#include "collectives/trace_log.h"
#include "collectives/wire.h"

namespace gradlane {

// Callers ask on() first, but for begins() and time().
class Tracer {
 public:
  // Ranks by link.
  Tracer(unsigned rank, std::span<const unsigned> neighbours) noexcept : rank_(rank), neighbours_(neighbours) {}

  [[nodiscard]] bool on() const noexcept { return log_ != nullptr; }

  // Before each poll, once there is a log: a trace begins or ends as the log says. Whether one is being taken. What
  // runs already is in it from now on.
  bool follow(TraceLog& log, std::span<Running> operations, uint64_t session, Nanos now) noexcept;

  // `missing`: the rank without which the ring is not whole.
  void submitted(const Running& it, uint64_t session, unsigned missing, Nanos now) noexcept;
  void started(const Running& it, uint64_t session) noexcept;
  void stage_ended(const Running& it) noexcept { log_->write_hops(it.place); }
  void ended(const Running& it, const Failure& failure, uint64_t flags = 0) noexcept;

  // A run of so many bytes. `link`: as many as there are: it goes to all.
  void sent(const Running& it, Phase phase, unsigned block, size_t link, size_t bytes) noexcept;
  void received(const Running& it, const RunHeader& run, bool in_turn, size_t link) noexcept;
  [[nodiscard]] bool records(const Running& it) const noexcept { return log_->operation(it.place) != nullptr; }
  void waits(const Running& it, TraceCause cause, unsigned rank) noexcept { log_->wait(it.place, cause, rank); }

  // The time, if what begins now is to be timed; else 0, with which time() does nothing.
  [[nodiscard]] Nanos begins() const noexcept { return log_ != nullptr && log_->times() ? log_->clock() : 0; }
  void time(const Running& it, Nanos TraceOperation::*of, Nanos began) noexcept;

 private:
  const unsigned rank_;
  const std::span<const unsigned> neighbours_;
  TraceLog* log_ = nullptr;  // of the trace that is taken; null: none is
};

}  // namespace gradlane
