// source_watch.h - whether one node is two at once, by where its packets come from (logic without I/O or clock)
#pragma once

#include <cstdint>

#include "base/time.h"

namespace gradlane {

// Sees a number for the source of each packet of one node, such as its MAC address. The one that speaks is believed as
// long as it is heard; another one is a stranger. A node that moves has another source from some time on, and the old
// one is not heard any more: after kGone the new one is believed. Two machines that both take themselves for that node
// alternate. One worker's.
class SourceWatch {
 public:
  static constexpr Nanos kGone = 1500 * kMillisecond;
  // The believed one is heard again after the same stranger so often, all within kTogether. A single packet may be late
  // or damaged.
  static constexpr unsigned kReturns = 4;
  static constexpr Nanos kTogether = 5 * kSecond;

  enum class Verdict : uint8_t { kBelieved, kStranger, kDoubled };

  [[nodiscard]] uint64_t believed() const noexcept { return believed_; }
  [[nodiscard]] uint64_t stranger() const noexcept { return stranger_; }
  // The believed one is there.
  [[nodiscard]] bool hears(Nanos now) const noexcept { return believed_ != 0 && now - heard_at_ < kGone; }

  // kDoubled comes once for every kReturns, with a packet of the believed one.
  [[nodiscard]] Verdict see(uint64_t source, Nanos now) noexcept {
    if (source != believed_ && hears(now)) return see_stranger(source);
    if (source != believed_) {
      believed_ = source;
      stranger_ = 0;
    }
    heard_at_ = now;
    return interrupted_ ? see_return(now) : Verdict::kBelieved;
  }

 private:
  [[nodiscard]] Verdict see_stranger(uint64_t source) noexcept {
    if (source != stranger_) returns_ = 0;
    stranger_ = source;
    interrupted_ = true;
    return Verdict::kStranger;
  }
  [[nodiscard]] Verdict see_return(Nanos now) noexcept {
    interrupted_ = false;
    if (stranger_ == 0) return Verdict::kBelieved;
    if (returns_ == 0 || now - first_at_ > kTogether) {
      first_at_ = now;
      returns_ = 0;
    }
    if (++returns_ < kReturns) return Verdict::kBelieved;
    returns_ = 0;
    return Verdict::kDoubled;
  }

  uint64_t believed_ = 0;
  uint64_t stranger_ = 0;
  Nanos heard_at_ = 0;        // the believed one
  bool interrupted_ = false;  // the stranger was, since then
  unsigned returns_ = 0;
  Nanos first_at_ = 0;
};

}  // namespace gradlane
