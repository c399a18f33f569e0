// lifecycle.h - the life of operations: started, through a stage, over; sessions that end (lane's thread)
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
  // `ring`: of all ranks.
  Lifecycle(const EngineParts& parts, const Ring& ring, Membership& membership, OperationTable& table,
            Preparation& preparation) noexcept
      : parts_(parts), ring_(ring), membership_(membership), table_(table), preparation_(preparation) {}

  // ---- Starts. Those that wait, if the ring is whole.
  void start_waiting(Nanos now) noexcept;
  // What a neighbour says of this operation: it fails on all ranks if that is another one.
  void compare(Running& it, size_t link, const Descriptor& theirs) noexcept;

  // ---- Ends
  // The time of a call that may end operations.
  void set_time(Nanos now) noexcept { now_ = now; }
  // If nothing of its stage is left to do, begins the next one, or ends it. If its algorithm has found that it must
  // fail, it does.
  void end_if_done(Running& it) noexcept;
  bool fail_if_found(Running& it) noexcept;
  // It fails here, and the others will hear of it. `origin`: the rank on which that began.
  void fail_everywhere(Running& it, const Failure& failure, unsigned origin) noexcept;
  void abort(Running& it, Nanos polled_at) noexcept;

  // ---- Times
  // check_deadlines() will look at this operation in time.
  void note_deadline(const Running& it) noexcept;
  void check_deadlines(Nanos now) noexcept;
  [[nodiscard]] Nanos deadline() const noexcept { return operations_at_; }

  // A new session: the links are fresh, and so are the numbers.
  void handle(Membership::Event event) noexcept;

  [[nodiscard]] const Failure& failed() const noexcept { return failed_; }  // the last operation that did
  [[nodiscard]] const PastFailures& past_failures() const noexcept { return past_failures_; }
  [[nodiscard]] const OperationTimes& operation_times() const noexcept { return operation_times_; }

 private:
  void start(Running& it, Nanos now) noexcept;
  void begin_stage(Running& it) noexcept;
  void share_links() noexcept;
  void end(Running& it, const Failure& failure) noexcept;
  void note(const Failure& failure) noexcept;
  void tell_all(Running& it) noexcept;
  void fail_waiting(const Failure& failure) noexcept;
  [[nodiscard]] unsigned awaited(const Running& it) const noexcept;
  void set_deadline() noexcept;

  const EngineParts& parts_;
  const Ring& ring_;
  Membership& membership_;
  OperationTable& table_;
  Preparation& preparation_;
  size_t sharing_ = 0;            // operations that run, and have several ranks send to one at a time
  Nanos operations_at_ = kNever;  // the earliest time at which check_deadlines() has something to do
  Nanos now_ = 0;
  Failure failed_;
  PastFailures past_failures_;
  OperationTimes operation_times_{};
};

}  // namespace gradlane
