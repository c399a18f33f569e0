// source_watch.h - detects that one node is two machines, by the sources of its packets (logic without I/O or clock)
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// Takes a number for the source of each packet of one node, such as its MAC address. One source is believed as long as
// it is heard; any other source is a stranger. If a node moves, its packets have another source from then on. The new
// source is believed when the old one has not been heard for three quarters of timeouts.peer. Two machines that both
// act as that node alternate. An idle node sends a packet about every sixteenth of timeouts.peer, so longer timeouts
// need longer times here. Each object belongs to one worker.
class SourceWatch {
 public:
  // A node is doubled if the believed source is heard again after the same stranger this many times within together().
  // A single packet may be late or damaged, so one time is not enough.
  static constexpr unsigned kReturns = 4;

  enum class Verdict : uint8_t { kBelieved, kStranger, kDuplicateRank };

  explicit SourceWatch(Nanos peer_timeout) noexcept
      : gone_(std::max(1500 * kMillisecond, peer_timeout - peer_timeout / 4)),
        together_(std::max(5 * kSecond, peer_timeout)) {}

  [[nodiscard]] Nanos together() const noexcept { return together_; }
  [[nodiscard]] uint64_t believed() const noexcept { return believed_; }
  [[nodiscard]] uint64_t stranger() const noexcept { return stranger_; }
  // Returns whether the believed source is still there.
  [[nodiscard]] bool hears(Nanos now) const noexcept { return believed_ != 0 && now - heard_at_ < gone_; }

  // Returns the verdict on the source of a packet. It is kDuplicateRank once for every kReturns returns of the believed
  // source, at a packet of that source.
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
    if (returns_ == 0 || now - first_at_ > together_) {
      first_at_ = now;
      returns_ = 0;
    }
    if (++returns_ < kReturns) return Verdict::kBelieved;
    returns_ = 0;
    return Verdict::kDuplicateRank;
  }

  Nanos gone_;
  Nanos together_;
  uint64_t believed_ = 0;
  uint64_t stranger_ = 0;
  Nanos heard_at_ = 0;        // time of the last packet of the believed source
  bool interrupted_ = false;  // the stranger was heard after that
  unsigned returns_ = 0;
  Nanos first_at_ = 0;
};

}  // namespace gradlane
