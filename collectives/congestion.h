// congestion.h - round-trip time and delay-based congestion window of one link
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/packet.h"

namespace gradlane {

// Smoothed round-trip time and retransmission time-out after RFC 6298, and the least round-trip time of the last 10 to
// 20 s, which stands for the path without queues.
class RttEstimator {
 public:
  RttEstimator(Nanos min_rto, Nanos max_rto) : min_rto_(min_rto), max_rto_(max_rto) {}

  void sample(Nanos rtt, Nanos now) noexcept {
    if (smoothed_ == 0) {
      smoothed_ = rtt;
      deviation_ = rtt / 2;
      epoch_ = now;
    } else {
      const Nanos error = rtt > smoothed_ ? rtt - smoothed_ : smoothed_ - rtt;
      deviation_ = (3 * deviation_ + error) / 4;
      smoothed_ = std::max<Nanos>((7 * smoothed_ + rtt) / 8, 1);
    }
    if (now - epoch_ > kEpoch) {
      epoch_ = now;
      previous_least_ = least_;
      least_ = rtt;
    }
    least_ = std::min(least_, rtt);
  }

  [[nodiscard]] bool known() const noexcept { return smoothed_ != 0; }
  [[nodiscard]] Nanos smoothed() const noexcept { return smoothed_; }
  [[nodiscard]] Nanos least() const noexcept { return std::min(least_, previous_least_); }

  [[nodiscard]] Nanos timeout(unsigned backoff) const noexcept {
    const Nanos plain = known() ? std::max(smoothed_ + 4 * deviation_, min_rto_) : kUnknownFactor * min_rto_;
    return std::min(plain << backoff, std::max(max_rto_, min_rto_));
  }

 private:
  static constexpr Nanos kEpoch = 10 * kSecond;
  static constexpr Nanos kUnknownFactor = 20;  // nothing measured yet: the path may be a slow one

  Nanos min_rto_;
  Nanos max_rto_;
  Nanos smoothed_ = 0;
  Nanos deviation_ = 0;
  Nanos least_ = kNever;
  Nanos previous_least_ = kNever;
  Nanos epoch_ = 0;
};

// How many packets may be in flight. The signal is the delay that queues add, not loss: links may lose packets at
// random without being full (and a compressed exchange that halves its window for each of them would crawl). Once in a
// round trip the *least* RTT of that round is looked at, so that single late packets do not count (as TCP Vegas does):
// above the path's least RTT plus the target the window shrinks in proportion, below it grows by 1/16. It starts with
// half as many more each round trip until a queue builds up. Only a round that lost more than a sixteenth of its
// packets shrinks the window for loss's sake: such a queue is shorter than the target.
class CongestionWindow {
 public:
  CongestionWindow(size_t limit, Nanos target)
      : limit_(static_cast<double>(limit)), target_(target), window_(std::min(kInitial, limit_)) {}

  [[nodiscard]] size_t packets() const noexcept { return static_cast<size_t>(window_); }
  [[nodiscard]] double exact() const noexcept { return window_; }

  // `acked` packets were acknowledged; all before `acked_to` are now, and `sent_to` is the next to be sent. `limited`:
  // the window was what kept more from being sent.
  void acknowledged(size_t acked, Nanos rtt, Nanos least, uint32_t acked_to, uint32_t sent_to, bool limited) noexcept {
    least_of_round_ = std::min(least_of_round_, rtt);
    acked_in_round_ += acked;
    ++samples_;
    limited_ |= limited;
    if (starting_) {
      if (samples_ >= kStartSamples && least_of_round_ > least + target_ / 2) {
        starting_ = false;
        window_ = clamp(window_ * static_cast<double>(least + target_ / 2) / static_cast<double>(least_of_round_));
      } else if (limited) {
        window_ = clamp(window_ + static_cast<double>(acked) / 2);
      }
    }
    if (static_cast<int32_t>(acked_to - round_end_) >= 0) end_round(least, sent_to);
  }

  void lost(size_t packets) noexcept { lost_in_round_ += packets; }

  // `times` time-outs came before this one, with nothing acknowledged since. The first one may just be the loss of the
  // last packet, with none behind it to show that.
  void timed_out(unsigned times) noexcept {
    starting_ = false;
    if (times != 0) window_ = clamp(window_ / 2);
  }

 private:
  static constexpr double kInitial = 16;
  static constexpr double kLeast = 2;
  static constexpr unsigned kStartSamples = 4;

  double clamp(double window) const noexcept { return std::clamp(window, std::min(kLeast, limit_), limit_); }

  void end_round(Nanos least, uint32_t sent_to) noexcept {
    if (lost_in_round_ > 3 && lost_in_round_ * 16 > acked_in_round_) {
      starting_ = false;
      window_ = std::max(clamp(window_ * 0.8), std::min(window_, kInitial));
    } else if (!starting_) {
      const Nanos most = least + target_;
      if (least_of_round_ > most) {
        window_ = clamp(window_ * std::max(static_cast<double>(most) / static_cast<double>(least_of_round_), 0.5));
      } else if (limited_) {
        window_ = clamp(window_ + std::max(window_ / 16, 1.0));
      }
    }
    round_end_ = sent_to;
    least_of_round_ = kNever;
    samples_ = 0;
    acked_in_round_ = 0;
    lost_in_round_ = 0;
    limited_ = false;
  }

  double limit_;
  Nanos target_;
  double window_;
  bool starting_ = true;
  bool limited_ = false;
  uint32_t round_end_ = 0;
  Nanos least_of_round_ = kNever;
  unsigned samples_ = 0;
  size_t acked_in_round_ = 0;
  size_t lost_in_round_ = 0;
};

}  // namespace gradlane
