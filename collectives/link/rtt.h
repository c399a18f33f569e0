// rtt.h - round-trip time, retransmission timeout, and queueing delay on the return path, of one link
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// Estimates the smoothed round-trip time and the retransmission timeout as in RFC 6298. It also keeps the least
// round-trip time of the last 10 to 20 s, which stands for the path without queues.
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
    const Nanos plain = known() ? smoothed_ + std::max(margin(), min_rto_) : kUnknownFactor * min_rto_;
    return std::min(plain << backoff, std::max(max_rto_, min_rto_));
  }
  // Returns after what time without an acknowledgement a probe is sent. It is at most timeout(0).
  [[nodiscard]] Nanos probe_timeout() const noexcept {
    return known() ? std::min(smoothed_ + std::max(margin(), min_rto_ / 5), timeout(0)) : timeout(0);
  }
  // Returns the time after which most acknowledgements have come; kNever if no RTT is known.
  [[nodiscard]] Nanos usual() const noexcept { return known() ? smoothed_ + deviation_ : kNever; }

 private:
  // If the RTT is steady, the deviation is 0, but a burst of others' packets may still double the RTT.
  [[nodiscard]] Nanos margin() const noexcept { return std::max(4 * deviation_, smoothed_); }

  static constexpr Nanos kEpoch = 10 * kSecond;
  // timeout in multiples of min_rto before the first measurement; the path may be slow
  static constexpr Nanos kUnknownFactor = 20;

  Nanos min_rto_;
  Nanos max_rto_;
  Nanos smoothed_ = 0;
  Nanos deviation_ = 0;
  Nanos least_ = kNever;
  Nanos previous_least_ = kNever;
  Nanos epoch_ = 0;
};

// Estimates the delay in the queue on the return path, if the neighbour sends data too. Acknowledgements that travel
// with that data wait in the queue, for which this side is not responsible. The difference between our clock and a
// packet's stamp is the packet's delay plus the clocks' difference. Its least value within the last 64 to 128 ms stands
// for an empty queue. Clocks drift apart by only a few microseconds in that time.
class ReturnQueue {
 public:
  // Processes a packet with the neighbour's clock reading `stamp` that arrived at `now` on our clock, both in stamps
  // (64 ns). Returns its delay in the queue, in stamps.
  uint32_t sample(uint32_t now, uint32_t stamp, Nanos time) noexcept {
    const uint32_t behind = now - stamp;
    if (!known_) previous_least_ = least_ = behind;
    known_ = true;
    if (time - epoch_ > kEpoch) {
      epoch_ = time;
      previous_least_ = least_;
      least_ = behind;
    }
    if (before(behind, least_)) least_ = behind;
    return behind - (before(least_, previous_least_) ? least_ : previous_least_);
  }

 private:
  static constexpr Nanos kEpoch = 64 * kMillisecond;

  // Compares differences of clocks, which wrap.
  static bool before(uint32_t a, uint32_t b) noexcept { return static_cast<int32_t>(a - b) < 0; }

  bool known_ = false;
  uint32_t least_ = 0;
  uint32_t previous_least_ = 0;
  Nanos epoch_ = 0;
};

}  // namespace gradlane
