// idle.h - the decision whether an idle worker polls on, yields or sleeps (worker thread only)
#pragma once

#include <cstdint>

#include "base/time.h"
#include "config/config.h"

namespace gradlane {

// Decides whether an idle worker polls on, yields or sleeps. Several nodes and trainers may share a core, so an idle
// worker gives it up. First the worker yields, which costs 2 us, mostly to a neighbour's worker that has the next
// packet. Then it sleeps, longer and longer. Sleeps of less than about 50 us cost as much CPU as polling does.
class Idle {
 public:
  // The time for which a worker yields while operations are in flight, before it sleeps. With links in memory, a packet
  // comes as soon as the neighbour gets the CPU. Packets through the kernel take tens of microseconds in any case, and
  // the kernel needs the CPU for them.
  static constexpr Nanos kMemoryPatience = 2 * kMillisecond;
  static constexpr Nanos kKernelPatience = 30 * kMicrosecond;
  // On loopback, packets come when a neighbour has worked through its burst. A worker that sleeps meanwhile wakes up
  // late. With a patience of 30 us, two nodes took 64 to 90 ms for 64 MiB (MTU 1500); with this one they take 55 to
  // 61 ms.
  static constexpr Nanos kLoopbackPatience = 300 * kMicrosecond;

  explicit Idle(IdlePolicy policy, Nanos patience = kMemoryPatience) noexcept : policy_(policy), patience_(patience) {}

  struct Advice {
    bool yield = false;
    Nanos sleep = 0;  // length of the sleep; 0: do not sleep
  };

  // Sets whether packets on every queue wake the worker up. Then sleeps are long.
  void set_woken(bool woken) noexcept { woken_ = woken; }

  // Returns what to do after a poll. `moved`: whether the poll moved anything. `in_flight`: whether operations are in
  // flight, for which packets may come at any time. `deadline`: when the next deadline is.
  [[nodiscard]] Advice after(bool moved, bool in_flight, Nanos now, Nanos deadline) noexcept;

 private:
  IdlePolicy policy_;
  Nanos patience_;
  bool woken_ = false;
  Nanos moved_at_ = 0;
};

}  // namespace gradlane
