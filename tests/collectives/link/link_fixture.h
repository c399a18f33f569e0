// link_fixture.h - two ends of a link, without an exchange around them, over a wire that loses packets as tests say
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "base/time.h"
#include "collectives/crc32c.h"
#include "collectives/link/link.h"

namespace gradlane::test {

using Bytes = std::vector<uint8_t>;

inline constexpr size_t kMtu = 256;
inline constexpr Nanos kDelay = 25 * kMicrosecond;  // one way
inline constexpr Nanos kSpacing = kMicrosecond;     // time between packets on the wire
inline constexpr Nanos kRtt = 2 * kDelay + 2 * kSpacing;

// The fate of a packet: how many copies arrive, and how much later than usual.
struct Fate {
  unsigned copies = 1;
  Nanos later = 0;
};

// One end of the link, with an owner that sends numbered packets as fast as the link allows.
class End final : public PacketIo {
 public:
  End(const ExchangeConfig& config, unsigned peer) : link(config, config.window, peer, *this, counters) {}
  ~End() override {
    link.reset(0);
    EXPECT_EQ(held, 0U);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  Packet allocate() noexcept override {
    if (held >= buffers) return {};
    ++held;
    auto* const bytes = new uint8_t[kMtu];  // allocated with the exact size, for AddressSanitizer
    return {bytes, bytes};
  }
  void release(Packet packet) noexcept override {
    ASSERT_NE(packet.data, nullptr);
    delete[] static_cast<uint8_t*>(packet.handle);
    --held;
  }
  bool transmit(unsigned, Packet packet, size_t bytes) noexcept override {
    if (busy && busy()) return false;
    send({packet.data, packet.data + bytes});
    sent_from.push_back(packet.data);
    return true;
  }
  bool is_read(unsigned, Packet packet) const noexcept override { return reads && reads(packet); }

  // Sends packets with numbers from `sent` to `end` - 1, as far as the link allows.
  void pump(uint32_t end, Nanos now) {
    while (sent != end && link.can_send()) {
      const Packet packet = allocate();
      if (!packet) return;
      uint8_t* const payload = packet.data + sizeof(LinkHeader);
      store(payload, sent);
      ++sent;
      link.send(packet, sizeof(LinkHeader) + sizeof(sent), crc32c(kCrcStart, payload, sizeof(sent)), now);
    }
  }

  void receive(const Bytes& packet, Nanos now) {
    const auto header = load<LinkHeader>(packet.data());
    const uint32_t state = crc32c(kCrcStart, packet.data() + sizeof(header), packet.size() - sizeof(header));
    ASSERT_EQ(header.crc, ~crc32c(state, packet.data(), kCrcOffset));
    ASSERT_EQ(header.magic, kMagic);
    link.acknowledge(header, now);
    if (header.kind != PacketKind::kData) {
      ++bare;
      return;
    }
    const auto place = link.classify(header.sequence);
    ASSERT_NE(place, ReceiveWindow::Place::kTooFar) << header.sequence;
    if (place == ReceiveWindow::Place::kDuplicate) {
      ++duplicates;
      link.repeat(header.sequence);
      return;
    }
    if (refuse && refuse(header.sequence)) return;
    link.accept(header);
    ASSERT_TRUE(arrived.insert(load<uint32_t>(packet.data() + sizeof(header))).second) << "delivered twice";
    while (arrived.contains(in_order)) ++in_order;
  }

  Counters counters;
  size_t buffers = size_t{1} << 20;
  size_t held = 0;
  std::function<void(Bytes)> send;
  std::function<bool()> busy;
  std::function<bool(Packet)> reads;      // returns whether the hardware still reads the packet
  std::vector<const uint8_t*> sent_from;  // buffers of transmissions
  std::function<bool(uint32_t)> refuse;   // returns whether a packet fails the owner's checks
  uint32_t sent = 0;
  std::set<uint32_t> arrived;
  uint32_t in_order = 0;  // all packets before this one have arrived
  unsigned duplicates = 0;
  unsigned bare = 0;
  Link link;
};

inline ExchangeConfig with_window(size_t window) {
  ExchangeConfig config;
  config.mtu = kMtu;
  config.window = window;
  config.min_rto = kMillisecond;
  return config;
}

// Both ends, and the time. Only deadlines and arrivals wake an end, as with real owners.
class Pair {
 public:
  Pair(size_t window, size_t other_window) : Pair(with_window(window), with_window(other_window)) {}
  Pair(const ExchangeConfig& config, const ExchangeConfig& other) : a(config, 1), b(other, 0) {
    a.send = [this](Bytes packet) { put(b, fate_ab, free_ab_, std::move(packet)); };
    b.send = [this](Bytes packet) { put(a, fate_ba, free_ba_, std::move(packet)); };
    for (End* const end : {&a, &b}) {
      end->link.reset(7);
      end->link.set_up(now);
    }
  }

  void run_until(Nanos time) {
    do {
      turn();
    } while (step(time));
  }
  // Runs until everything is delivered and acknowledged. Returns false if that takes longer than `time`.
  bool run(uint32_t to_b, uint32_t to_a, Nanos time) {
    to_b_ = to_b;
    to_a_ = to_a;
    const Nanos limit = now + time;
    do {
      turn();
      if (b.arrived.size() == to_b && a.arrived.size() == to_a && a.link.in_flight() + b.link.in_flight() == 0) {
        return true;
      }
    } while (step(limit));
    return false;
  }
  [[nodiscard]] uint64_t count(Counter counter) const { return a.counters[counter] + b.counters[counter]; }

  Nanos now = kSecond;
  std::function<Fate(const LinkHeader&)> fate_ab;
  std::function<Fate(const LinkHeader&)> fate_ba;
  End a;
  End b;

 private:
  struct Flying {
    Nanos due;
    uint64_t order;
    End* to;
    Bytes packet;
    bool operator<(const Flying& other) const {
      return due != other.due ? due > other.due : order > other.order;  // priority_queue puts the largest first
    }
  };

  void put(End& to, const std::function<Fate(const LinkHeader&)>& fate, Nanos& free, Bytes packet) {
    const Fate it = fate ? fate(load<LinkHeader>(packet.data())) : Fate{};
    free = std::max(free, now) + kSpacing;
    for (unsigned copy = 0; copy < it.copies; ++copy) flying_.push({free + kDelay + it.later, order_++, &to, packet});
  }
  void turn() {
    for (End* const end : {&a, &b}) {
      end->link.poll(now);
      end->pump(end == &a ? to_b_ : to_a_, now);
      end->link.flush(now);
    }
  }
  bool step(Nanos limit) {
    Nanos next = std::min(a.link.deadline(), b.link.deadline());
    if (!flying_.empty()) next = std::min(next, flying_.top().due);
    next = std::max(next, now + 100);  // an owner needs some time for each round
    if (next > limit) {
      now = limit;
      return false;
    }
    now = next;
    while (!flying_.empty() && flying_.top().due <= now) {
      const Flying it = flying_.top();
      flying_.pop();
      it.to->receive(it.packet, now);
    }
    return true;
  }

  std::priority_queue<Flying> flying_;
  Nanos free_ab_ = 0;  // time at which the wire from `a` to `b` has carried the latest packet
  Nanos free_ba_ = 0;
  uint64_t order_ = 0;
  uint32_t to_b_ = 0;
  uint32_t to_a_ = 0;
};

}  // namespace gradlane::test
