// lifecycle.h - the life of operations: their start, stages and end, also at the end of a session (lane's thread)
#pragma once

#include <cstddef>

#include "base/time.h"
#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/membership.h"
#include "collectives/exchange/operation_table.h"
#include "collectives/exchange/preparation.h"
#include "collectives/strategy/ring.h"

namespace gradlane {

class Lifecycle {
 public:
  // `ring`: the ring of all ranks.
  Lifecycle(const EngineParts& parts, const Ring& ring, Membership& membership, OperationTable& table,
            Preparation& preparation) noexcept
      : parts_(parts), ring_(ring), membership_(membership), table_(table), preparation_(preparation) {}

  // ---- Starts
  //
  // Starts the operations that wait, if the ring is ready.
  void start_waiting(Nanos now) noexcept;
  // Compares the operation with the one that a neighbour has announced under its number. Fails it on all ranks if they
  // differ.
  void compare(OperationState& it, size_t link, const Descriptor& theirs) noexcept;

  // ---- Ends
  //
  // Sets the time for calls that may end operations.
  void set_time(Nanos now) noexcept { now_ = now; }
  // If nothing of the stage is left to do, end_if_done() begins the next stage or ends the operation. Both functions
  // fail the operation if its algorithm has found a failure. fail_if_found() returns whether it did so.
  void end_if_done(OperationState& it) noexcept;
  bool fail_if_found(OperationState& it) noexcept;
  // Fails the operation on this rank, and queues the aborts that inform the others. `origin`: the rank on which the
  // failure began.
  void fail_everywhere(OperationState& it, const Failure& failure, unsigned origin) noexcept;
  void abort(OperationState& it, Nanos polled_at) noexcept;

  // ---- Times
  //
  // Makes sure that check_deadlines() checks this operation in time.
  void note_deadline(const OperationState& it) noexcept;
  void check_deadlines(Nanos now) noexcept;
  [[nodiscard]] Nanos deadline() const noexcept { return operations_at_; }

  // Handles a change of the session: resets the links. After the end of a generation it also fails all operations and
  // restarts their numbers.
  void handle(Membership::Event event) noexcept;

  // Returns the failure of the latest operation that failed.
  [[nodiscard]] const Failure& failed() const noexcept { return failed_; }
  [[nodiscard]] const PastFailures& past_failures() const noexcept { return past_failures_; }
  [[nodiscard]] const OperationTimes& operation_times() const noexcept { return operation_times_; }

 private:
  void start(OperationState& it, Nanos now) noexcept;
  void begin_stage(OperationState& it) noexcept;
  void share_links() noexcept;
  void end(OperationState& it, const Failure& failure) noexcept;
  void note(const Failure& failure) noexcept;
  void tell_all(OperationState& it) noexcept;
  void fail_waiting(const Failure& failure) noexcept;
  [[nodiscard]] unsigned awaited(const OperationState& it) const noexcept;
  void set_deadline() noexcept;

  const EngineParts& parts_;
  const Ring& ring_;
  Membership& membership_;
  OperationTable& table_;
  Preparation& preparation_;
  size_t sharing_ = 0;            // running operations in which several ranks send to one at a time
  Nanos operations_at_ = kNever;  // earliest time at which check_deadlines() has something to do
  Nanos now_ = 0;
  Failure failed_;
  PastFailures past_failures_;
  OperationTimes operation_times_{};
};

}  // namespace gradlane
