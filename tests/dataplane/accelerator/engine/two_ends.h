// two_ends.h - two accelerators and the wire between them, for tests of the engine
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "dataplane/accelerator/engine/accelerator.h"
#include "tests/dataplane/accelerator/engine/frames.h"

namespace gradlane::test {

// One engine, and the frames that it sends. Every buffer is accounted for. Every buffer is exactly as long as it may
// be, so that AddressSanitizer sees accesses beyond its end.
class End final : private accel::FrameIo {
 public:
  static constexpr Nanos kStart = 1000 * kSecond;

  explicit End(const accel::Accelerator::Setup& setup)
      : room_(setup.mtu + 18),
        engine_(std::make_unique<accel::Accelerator>(setup, static_cast<accel::FrameIo&>(*this))) {}

  void from_host(const Bytes& frame, Nanos now = kStart) { engine_->from_host(frame_of(frame), now); }
  void from_wire(const Bytes& frame, Nanos now = kStart) { engine_->from_wire(frame_of(frame), now); }
  void poll(Nanos now = kStart) { engine_->poll(now); }

  [[nodiscard]] accel::Accelerator& engine() { return *engine_; }
  [[nodiscard]] uint64_t count(accel::Counter counter) const { return engine_->counters()[counter]; }
  [[nodiscard]] uint64_t published(const std::string& name) const {
    uint64_t found = ~uint64_t{0};
    engine_->for_each_published([&](const CounterValue& each) {
      if (name == each.name) found = each.value;
    });
    return found;
  }
  // Returns the number of buffers that were neither sent nor given back.
  [[nodiscard]] size_t held() const { return buffers_.size(); }
  void refuse_buffers(bool refuse) { refuse_ = refuse; }

  std::vector<Bytes> wire, host;  // frames that were sent to the wire and to the host

 private:
  // Returns a frame with these bytes in a buffer of room_ bytes. A longer frame, as offloads make it, gets a buffer of
  // its own length.
  [[nodiscard]] accel::Frame frame_of(const Bytes& bytes) {
    const accel::Frame frame = make(std::max(room_, bytes.size()));
    std::copy(bytes.begin(), bytes.end(), frame.data);
    return {frame.data, bytes.size(), frame.room, frame.owner};
  }
  [[nodiscard]] accel::Frame make(size_t room) {
    auto* const data = new uint8_t[room];
    buffers_.insert(data);
    return {data, 0, room, data};
  }
  void give_back(const accel::Frame& frame) {
    auto* const data = static_cast<uint8_t*>(frame.owner);
    if (buffers_.erase(data) != 1) std::abort();  // given back twice, or never allocated
    delete[] data;
  }

  accel::Frame allocate() noexcept override { return refuse_ ? accel::Frame{} : make(room_); }
  void release(const accel::Frame& frame) noexcept override { give_back(frame); }
  void to_wire(const accel::Frame& frame) noexcept override { take(wire, frame); }
  void to_host(const accel::Frame& frame) noexcept override { take(host, frame); }
  void take(std::vector<Bytes>& where, const accel::Frame& frame) {
    where.emplace_back(frame.data, frame.data + frame.bytes);
    give_back(frame);
  }

  const size_t room_;
  std::set<uint8_t*> buffers_;
  bool refuse_ = false;
  std::unique_ptr<accel::Accelerator> engine_;
};

// `near` is the accelerator of kTheirIp, because the packets of frames.h go from kTheirIp to kOurIp.
class TwoEnds {
 public:
  explicit TwoEnds(const accel::Accelerator::Setup& setup = {}) : near(setup), far(setup) {}

  // Delivers the frames on the wire, both ways, until none is left.
  void deliver(Nanos now = End::kStart) {
    while (!near.wire.empty() || !far.wire.empty()) {
      const std::vector<Bytes> there = std::exchange(near.wire, {});
      const std::vector<Bytes> back = std::exchange(far.wire, {});
      for (const Bytes& frame : there) far.from_wire(frame, now);
      for (const Bytes& frame : back) near.from_wire(frame, now);
    }
  }
  // Exchanges hellos, after which `near` knows that `far` restores packets.
  void meet(Nanos now = End::kStart) {
    Packet packet;
    packet.protocol = 17;
    packet.payload.resize(64);
    // An accelerator answers for its host only after it has seen a frame of that host.
    Packet other = packet;
    other.tos = 0;
    std::swap(other.from, other.to);
    far.from_host(frame_of(other), now);
    far.wire.clear();
    near.from_host(frame_of(packet), now);
    near.poll(now);
    deliver(now);
    near.wire.clear();
    far.host.clear();
  }

  End near, far;
};

inline Packet udp(const Bytes& payload, uint8_t tos = kTosCompressed) {
  Packet packet;
  packet.protocol = 17;
  packet.tos = tos;
  packet.payload = payload;
  return packet;
}

// Returns a UDP frame as a kernel leaves it to a device that computes checksums. Its checksum field has the sum of the
// pseudo-header.
inline Bytes unfinished(Bytes frame) {
  uint32_t sum = 17 + get16(frame, 38);
  for (size_t i = 26; i < 34; i += 2) sum += get16(frame, i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  put16(frame, l4_checksum_at(frame), sum);
  return frame;
}

// A connection from the SYN on. Its packets have consecutive ids.
class Connection {
 public:
  explicit Connection(uint8_t tos = kTosCompressed, uint32_t isn = 0xfffff000, uint16_t port = 40000) {
    packet_.source_port = port;
    packet_.tos = tos;
    packet_.seq = isn;
    packet_.tcp_options = timestamps(1, 2);
  }
  [[nodiscard]] Bytes syn() { return segment(0x02, {}); }
  [[nodiscard]] Bytes data(const Bytes& payload) { return segment(0x18, payload); }
  [[nodiscard]] Bytes fin() { return segment(0x11, {}); }
  [[nodiscard]] uint32_t seq() const { return packet_.seq; }
  // Returns a frame with bytes that were sent before, from `seq` on.
  [[nodiscard]] Bytes again(uint32_t seq, const Bytes& payload) {
    Packet packet = packet_;
    ++packet_.id;
    packet.seq = seq;
    packet.flags = 0x10;
    packet.payload = payload;
    return frame_of(packet);
  }
  // Returns an acknowledgement of the far host.
  [[nodiscard]] Bytes ack(uint32_t ack) const {
    Packet packet = packet_;
    std::swap(packet.source_ip, packet.destination_ip);
    std::swap(packet.source_port, packet.destination_port);
    std::swap(packet.from, packet.to);
    packet.tos = 0;
    packet.ack = ack;
    packet.flags = 0x10;
    return frame_of(packet);
  }

 private:
  Bytes segment(uint8_t flags, const Bytes& payload) {
    packet_.flags = flags;
    packet_.payload = payload;
    const Bytes frame = frame_of(packet_);
    packet_.seq += static_cast<uint32_t>(payload.size()) + ((flags & 3) != 0 ? 1 : 0);
    ++packet_.id;
    packet_.payload.clear();
    return frame;
  }
  Packet packet_;
};

inline accel::Accelerator::Setup with_hold(Nanos hold) {
  accel::Accelerator::Setup setup;
  setup.hold = hold;
  setup.streams.streams = 256;
  setup.streams.memory = 1 << 20;
  return setup;
}

}  // namespace gradlane::test
