// congestion.h - delay-based congestion window of one link
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// Computes how many packets may be in flight. The signal is delay, not loss: links may lose packets at random without
// being full. A window that halves for each loss would slow a compressed exchange down to a crawl.
//
// Once per round trip, the number of this link's own packets that wait in queues is computed. The formula is that of
// TCP Vegas (Brakmo, Peterson, 1995): window * (rtt - least RTT of the path) / rtt. Here `rtt` is the *least* RTT of
// the round, so that single late packets do not count. The window moves towards a target for this number, by a part of
// the difference.
//
// Because own packets count, and not just the delay, links that share a queue converge to equal shares. If the delay is
// noise of the scheduler, the window still does not shrink to nothing. At the start the window grows by half in each
// round trip, until a queue builds up. Loss shrinks the window only in a round that lost more than three packets and
// more than a sixteenth of them. Packets in segments are counted by segments. Such a loss means that a queue is shorter
// than the target.
class CongestionWindow {
 public:
  // At most `limit` packets are in flight, of which about `target` wait in queues. The longest packets go in
  // `segments` datagrams.
  CongestionWindow(size_t limit, size_t target, size_t segments = 1)
      : limit_(static_cast<double>(limit)),
        full_target_(static_cast<double>(target)),
        target_(full_target_),
        segments_(static_cast<double>(segments)),
        least_(segments == 1 ? kLeast : 1),
        initial_(std::max(kInitial / segments_, kLeast)),
        window_(std::min(initial_, limit_)) {}

  // Divides the target, and the initial window, by the number of links that end in the same queue.
  void share(unsigned links) noexcept {
    if (links == 1) {
      target_ = full_target_;
      if (starting_) window_ = std::max(window_, std::min(initial_, limit_));
      return;
    }
    target_ = std::max(full_target_ / links, std::min(kLeastTarget, kMostTogether / segments_ / links));
    if (starting_) window_ = clamp(std::min(window_, initial_ / links));
  }

  [[nodiscard]] size_t packets() const noexcept { return static_cast<size_t>(window_); }
  [[nodiscard]] double exact() const noexcept { return window_; }

  // Processes an acknowledgement of `acked` packets. All packets before `acked_to` are acknowledged now, and `sent_to`
  // is the next one to be sent. `limited`: the window kept more packets from being sent.
  void acknowledged(size_t acked, Nanos rtt, Nanos least, uint32_t acked_to, uint32_t sent_to, bool limited) noexcept {
    least_of_round_ = std::min(least_of_round_, rtt);
    acked_in_round_ += acked;
    ++samples_;
    limited_ |= limited;
    if (starting_) {
      if (samples_ >= kStartSamples && queued(least) > target_ / 2) {
        starting_ = false;
        window_ = clamp(window_ - queued(least) + target_ / 2);
      } else if (limited) {
        window_ = clamp(window_ + static_cast<double>(acked) / 2);
      }
    }
    if (static_cast<int32_t>(acked_to - round_end_) >= 0) end_round(least, sent_to);
  }

  void lost(size_t datagrams) noexcept { lost_in_round_ += datagrams; }

  // Processes a timeout. `times`: number of timeouts before it without an acknowledgement in between. The first timeout
  // does not shrink the window: it may just be the loss of the last packet, which no later packet shows.
  void timed_out(unsigned times) noexcept {
    starting_ = false;
    if (times != 0) window_ = clamp(window_ / 2);
  }

 private:
  static constexpr double kInitial = 16;     // datagrams
  static constexpr double kLeast = 2;        // packets; if they go in segments, for the initial window only
  static constexpr double kLeastTarget = 2;  // least target of one of several links that share a queue
  // datagrams that such links together have in the queue of a switch, which is not much longer
  static constexpr double kMostTogether = 256;
  static constexpr unsigned kStartSamples = 4;

  double clamp(double window) const noexcept { return std::clamp(window, std::min(least_, limit_), limit_); }

  // Returns how many packets of this window waited in queues.
  double queued(Nanos least) const noexcept {
    const auto rtt = static_cast<double>(least_of_round_);
    return window_ * (rtt - static_cast<double>(least)) / rtt;
  }

  void end_round(Nanos least, uint32_t sent_to) noexcept {
    const double most = std::max(3.0, static_cast<double>(acked_in_round_) * segments_ / 16);
    if (static_cast<double>(lost_in_round_) > most) {
      starting_ = false;
      window_ = std::max(clamp(window_ * 0.8), std::min(window_, initial_));
    } else if (!starting_) {
      const double room = target_ - queued(least);
      if (room < 0) {
        window_ = clamp(std::max(window_ + room / 2, window_ / 2));
      } else if (limited_) {
        window_ = clamp(window_ + room / 4);
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
  double full_target_;
  double target_;
  double segments_;
  double least_;
  double initial_;
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
