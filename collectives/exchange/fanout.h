// fanout.h - packets of results that go to all other ranks: encoded once, copied for each link (packet path)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange/outbox.h"
#include "collectives/link/link.h"
#include "collectives/packet_io.h"

namespace gradlane {

// Full packets wait in a queue, and each link takes them at its own pace. A packet leaves the queue when it was sent on
// all links. So a slow or lossy link delays the others only when the queue is full. Results are encoded once for all
// links, and so rounded once.
//
// One buffer is kept for copies, and nothing enters the queue without it. Otherwise, packets that wait to be copied
// could occupy the last buffers that the copies need.
class Fanout final : public PacketSink {
 public:
  static constexpr size_t kPackets = 128;

  // Without links there is no queue, and nothing is ever put in.
  Fanout(std::span<Link> links, PacketIo& io, Counters& counters, const ExchangeConfig& config);

  // Gives back all buffers.
  void reset() noexcept;

  // Reserves a buffer for copies. Called before results are written.
  void prepare() noexcept;
  // Returns the outbox that results are written to.
  [[nodiscard]] Outbox& outbox() noexcept { return outbox_; }
  [[nodiscard]] const Outbox& outbox() const noexcept { return outbox_; }

  // Sends on each link the packets that were not yet sent on it, as far as it takes them now. Returns whether packets
  // are left.
  bool pump(Nanos now) noexcept;
  // Returns whether all packets were sent on all links.
  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  // Returns whether a buffer for results or for a copy was missing in the last poll, or is missing now.
  [[nodiscard]] bool starved() const noexcept {
    return starved_ || outbox_.starved() || (!spare_ && outbox_.holds(Outbox::kResults));
  }

  // ---- PacketSink
  [[nodiscard]] bool takes(bool) const noexcept override;
  void take(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept override;

 private:
  struct Waiting {
    Packet packet;
    size_t bytes = 0;
    uint32_t payload_crc = 0;
    size_t left = 0;  // number of links on which it was not sent yet
  };
  bool send_next(size_t link, Nanos now) noexcept;

  std::span<Link> links_;
  PacketIo& io_;
  Counters& counters_;
  std::vector<Waiting> queue_;  // ring buffer
  std::vector<uint64_t> sent_;  // by link: number of packets that were sent on it; counts like `head_`
  uint64_t tail_ = 0;
  uint64_t head_ = 0;
  Packet spare_;
  bool starved_ = false;
  Outbox outbox_;
};

}  // namespace gradlane
