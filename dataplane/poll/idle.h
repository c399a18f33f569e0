// idle.h - what a worker does between polls that moved nothing (worker thread only)
#pragma once

#include <cstdint>

#include "base/time.h"
#include "config/config.h"

namespace gradlane {

// Several nodes and trainers may share a core, so an idle worker gives it up: first to whoever is ready (a neighbour
// with the next packet, in most cases: 2 us), then for good, in sleeps that get longer. Sleeps of less than about 50 us
// cost as much CPU as polling does.
class Idle {
 public:
  // How long a worker yields while operations are in flight, before it sleeps: where links are in memory, packets come
  // as soon as a neighbour has the CPU; the kernel's take tens of microseconds whatever we do, and need it themselves.
  static constexpr Nanos kMemoryPatience = 2 * kMillisecond;
  static constexpr Nanos kKernelPatience = 30 * kMicrosecond;

  explicit Idle(IdlePolicy policy, Nanos patience = kMemoryPatience) noexcept : policy_(policy), patience_(patience) {}

  struct Advice {
    bool yield = false;
    Nanos sleep = 0;  // 0: do not
  };

  // Whether packets wake the worker up, wherever they come to: then sleeps are long.
  void set_woken(bool woken) noexcept { woken_ = woken; }

  // After a poll: did anything move; are operations in flight, which packets may come for at any time; when the next
  // deadline is.
  [[nodiscard]] Advice after(bool moved, bool in_flight, Nanos now, Nanos deadline) noexcept;

 private:
  IdlePolicy policy_;
  Nanos patience_;
  bool woken_ = false;
  Nanos moved_at_ = 0;
};

}  // namespace gradlane
