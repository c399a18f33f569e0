// idle.h - what a worker does between polls that moved nothing (worker thread only)
#pragma once

#include <cstdint>

#include "collectives/packet.h"
#include "config/config.h"

namespace gradlane {

// Several nodes and trainers may share a core, so an idle worker gives it up: first to whoever is ready (a neighbour
// with the next packet, in most cases: 2 us), then for good, in sleeps that get longer. Sleeps of less than about 50 us
// cost as much CPU as polling does.
class Idle {
 public:
  explicit Idle(IdlePolicy policy) noexcept : policy_(policy) {}

  struct Advice {
    bool yield = false;
    Nanos sleep = 0;  // 0: do not
  };

  // After a poll: did anything move; are operations in flight, which packets may come for at any time; when the next
  // deadline is.
  [[nodiscard]] Advice after(bool moved, bool in_flight, Nanos now, Nanos deadline) noexcept;

 private:
  IdlePolicy policy_;
  Nanos moved_at_ = 0;
};

}  // namespace gradlane
