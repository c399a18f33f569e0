// fault_injector.h - faults made on purpose in what one queue receives (worker thread only; no DPDK)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fault_dice.h"
#include "base/time.h"
#include "config/config.h"

namespace gradlane {

// Decides what becomes of each frame, as FaultDice does, and keeps those that come late. Frames are opaque here.
class FaultInjector {
 public:
  static constexpr size_t kHeld = 256;  // frames held back at a time; a full injector lets frames pass
  static constexpr unsigned kBehind = 8;
  static constexpr Nanos kPatience = kMillisecond;  // for later frames, which a reordered one comes behind

  // `stream` tells apart queues that have one seed.
  FaultInjector(const InjectedFaults& faults, uint64_t stream) noexcept;

  struct Fate {
    bool drop = false;  // and then nothing else
    bool duplicate = false;
    bool corrupt = false;
    size_t bit = 0;       // the one to change
    unsigned behind = 0;  // reordered: comes after so many later frames, 1 to kBehind
    bool delay = false;   // if both, the delay counts
  };
  // Of the next frame that arrives, which has `bytes` bytes.
  [[nodiscard]] Fate decide(size_t bytes) noexcept;

  // Keeps a frame that shall come late. False: it shall not, or there is no place, and the caller goes on with it.
  [[nodiscard]] bool hold(void* frame, const Fate& fate, Nanos now) noexcept;
  // A held frame whose time has come, in the order of arrival, or null.
  [[nodiscard]] void* take(Nanos now) noexcept;
  // Any held frame, or null: at the end.
  [[nodiscard]] void* take_any() noexcept;
  // When take() has something at the latest; kNever: nothing is held.
  [[nodiscard]] Nanos deadline() const noexcept { return deadline_; }

 private:
  struct Held {
    void* frame = nullptr;
    Nanos due = 0;
    uint64_t behind = 0;  // number of the arrival that it comes after at the latest
  };

  [[nodiscard]] void* remove(size_t place) noexcept;
  void look_at_held() noexcept;

  const InjectedFaults faults_;
  FaultDice dice_;
  uint64_t arrivals_ = 0;
  std::array<Held, kHeld> held_{};
  size_t count_ = 0;
  // The earliest of all that are held.
  Nanos deadline_ = kNever;
  uint64_t next_behind_ = ~uint64_t{0};
};

// "drop 1 %, delay 0.5 % by 2 ms, seed 7", for the log (set-up only).
[[nodiscard]] std::string faults_summary(const InjectedFaults& faults);

}  // namespace gradlane
