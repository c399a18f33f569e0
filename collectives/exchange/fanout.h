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

// Full packets wait in a queue, which each link goes through at its own pace. One leaves the queue when all links have
// had it. So a link that is slow, or has lost something, keeps others back only by the length of the queue; and results
// are encoded once, as codecs that round anew each time would want it.
//
// One buffer is kept for copies, and without it nothing enters the queue: or packets that wait for copies would take
// the last buffers that these could be made in.
class Fanout final : public PacketSink {
 public:
  static constexpr size_t kPackets = 128;

  // With no links there is none, and nothing is ever put in.
  Fanout(std::span<Link> links, PacketIo& io, Counters& counters, size_t mtu, bool pad);

  // Gives back all buffers.
  void reset() noexcept;

  // Before results are written: keeps a buffer for copies.
  void prepare() noexcept;
  // Where results are written to.
  [[nodiscard]] Outbox& outbox() noexcept { return outbox_; }
  [[nodiscard]] const Outbox& outbox() const noexcept { return outbox_; }

  // Sends what links have not had and take now. True if there is more.
  bool pump(Nanos now) noexcept;
  // All links have had all of it.
  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  // There was no buffer for results or for a copy in the last poll, or there is none now.
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
    size_t left = 0;  // links that have not had it
  };
  bool send_next(size_t link, Nanos now) noexcept;

  std::span<Link> links_;
  PacketIo& io_;
  Counters& counters_;
  std::vector<Waiting> queue_;  // a ring
  std::vector<uint64_t> sent_;  // by link: of all packets there ever were, so many
  uint64_t tail_ = 0;
  uint64_t head_ = 0;
  Packet spare_;
  bool starved_ = false;
  Outbox outbox_;
};

}  // namespace gradlane
