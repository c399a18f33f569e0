// queue.cc - bursts in and out of an accelerator's port (worker thread only)
#include "dataplane/accelerator/queue.h"

#include <rte_mbuf.h>

#include <algorithm>

#include "dataplane/device/packet_socket.h"

namespace gradlane {

size_t AcceleratorQueue::receive(Burst& burst) noexcept {
  if (!port_.started()) return 0;
  const uint16_t received = port_.receive(0, burst.data(), kBurst);
  if (received == 0) return 0;
  size_t whole = 0;
  uint64_t bytes = 0;
  for (uint16_t i = 0; i < received; ++i) {
    bytes += burst[i]->pkt_len;
    if (burst[i]->nb_segs == 1) {
      burst[whole++] = burst[i];
    } else {
      count(SideCounter::kSegmented);
      rte_pktmbuf_free(burst[i]);
    }
  }
  count(SideCounter::kReceived, received);
  count(SideCounter::kReceivedBytes, bytes);
  return whole;
}

void AcceleratorQueue::send(rte_mbuf* mbuf) noexcept {
  if (queued() == kQueued) {
    count(SideCounter::kFull);
    rte_pktmbuf_free(mbuf);
    return;
  }
  frames_[tail_ % kQueued] = mbuf;
  lengths_[tail_ % kQueued] = mbuf->pkt_len;
  ++tail_;
  if (queued() >= kSendBurst && !clogged_) flush(now_);
}

// Returns true if the device is known to have sent everything that it took.
bool AcceleratorQueue::settled(Nanos now) noexcept {
  if (unsettled_ == 0) return true;
  if (now < look_at_) return false;
  if (port_.packet_socket() < 0 || push_ring(port_.packet_socket())) {
    unsettled_ = 0;
    return true;
  }
  look_at_ = now + kLookAgain;
  return false;
}

void AcceleratorQueue::flush(Nanos now) noexcept {
  now_ = now;
  clogged_ = false;
  if (queued() == 0 || !port_.started()) return;
  while (queued() != 0) {
    if (unsettled_ > kMostUnsettled - kSendBurst && !settled(now)) {
      clogged_ = true;
      return;
    }
    const size_t at = head_ % kQueued;
    const auto offered = static_cast<uint16_t>(std::min({queued(), kQueued - at, kSendBurst}));
    const uint16_t sent = port_.send(0, &frames_[at], offered);
    uint64_t bytes = 0;
    for (size_t i = at; i < at + sent; ++i) bytes += lengths_[i];
    head_ += sent;
    unsettled_ += sent;
    count(SideCounter::kSent, sent);
    count(SideCounter::kSentBytes, bytes);
    if (sent == offered) continue;
    clogged_ = true;
    return;
  }
}

void AcceleratorQueue::maintain(Nanos now) noexcept {
  if (published_.due(now)) publish();
  if (queued() == 0 || clogged_at_ == 0 || clogged_head_ != head_) {
    clogged_at_ = queued() == 0 ? 0 : now;
    clogged_head_ = head_;
    return;
  }
  if (now - clogged_at_ < kPatience) return;
  count(SideCounter::kStalled, queued());
  drop_queued();
}

void AcceleratorQueue::drop_queued() noexcept {
  for (; head_ != tail_; ++head_) rte_pktmbuf_free(frames_[head_ % kQueued]);
  clogged_ = false;
}

}  // namespace gradlane
