// fault_injector.h - faults injected on purpose into the frames that one queue receives (worker thread only; no DPDK)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fault_dice.h"
#include "base/time.h"
#include "config/config.h"

namespace gradlane {

// Decides the fate of each frame by FaultDice, and holds the frames that must arrive late. Frames are opaque here.
class FaultInjector {
 public:
  static constexpr size_t kHeld = 256;  // frames held back at a time; a full injector lets frames pass
  static constexpr unsigned kBehind = 8;
  static constexpr Nanos kPatience = kMillisecond;  // longest wait of a reordered frame for the later frames

  // `stream` makes the faults of queues with one seed differ.
  FaultInjector(const InjectedFaults& faults, uint64_t stream) noexcept;

  struct Fate {
    bool drop = false;  // drops the frame; all else is ignored
    bool duplicate = false;
    bool corrupt = false;
    size_t bit = 0;       // bit to change
    unsigned behind = 0;  // reordered: number of later frames that come first, 1 to kBehind; else 0
    bool delay = false;   // delays the frame; if it is reordered, too, only the delay counts
  };
  // Returns the fate of the next frame that arrives, which has `bytes` bytes.
  [[nodiscard]] Fate decide(size_t bytes) noexcept;

  // Holds a frame that must arrive late. Returns false if the frame need not be late, or if no slot is free. The caller
  // then handles the frame at once.
  [[nodiscard]] bool hold(void* frame, const Fate& fate, Nanos now) noexcept;
  // Returns a held frame whose time has come, in the order of arrival, or null.
  [[nodiscard]] void* take(Nanos now) noexcept;
  // Returns any held frame, or null. It is for the end, when all are dropped.
  [[nodiscard]] void* take_any() noexcept;
  // Returns the latest time at which take() has a frame; kNever if none is held.
  [[nodiscard]] Nanos deadline() const noexcept { return deadline_; }

 private:
  struct Held {
    void* frame = nullptr;
    Nanos due = 0;
    uint64_t behind = 0;  // number of the arrival after which it is released at the latest
  };

  [[nodiscard]] void* remove(size_t place) noexcept;
  void look_at_held() noexcept;

  const InjectedFaults faults_;
  FaultDice dice_;
  uint64_t arrivals_ = 0;
  std::array<Held, kHeld> held_{};
  size_t count_ = 0;
  // Minimum over all held frames.
  Nanos deadline_ = kNever;
  uint64_t next_behind_ = ~uint64_t{0};
};

// Returns a summary for the log: "drop 1 %, delay 0.5 %, delay time 2ms, seed 7" (set-up only).
[[nodiscard]] std::string faults_summary(const InjectedFaults& faults);

}  // namespace gradlane
