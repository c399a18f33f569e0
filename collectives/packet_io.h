// packet_io.h - what the exchange needs from whoever owns packet buffers and moves packets
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// A packet buffer, opaque but for where its bytes are: the place of the link header.
struct Packet {
  uint8_t* data = nullptr;
  void* handle = nullptr;  // the owner's

  explicit operator bool() const noexcept { return data != nullptr; }
};

// Where packets that are filled go.
class PacketSink {
 public:
  // Whether one may be given now; those of control find room where others do not.
  [[nodiscard]] virtual bool takes(bool control) const noexcept = 0;
  // Then: one whose bytes behind the link header are complete, and whose CRC state is `payload_crc`. The buffer is the
  // sink's from now on.
  virtual void take(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept = 0;

 protected:
  PacketSink() = default;
  PacketSink(const PacketSink&) = default;
  PacketSink(PacketSink&&) = default;
  PacketSink& operator=(const PacketSink&) = default;
  PacketSink& operator=(PacketSink&&) = default;
  ~PacketSink() = default;
};

// Implemented by the owner: a lane over DPDK, a simulated network. Called from the thread that calls the Exchange.
class PacketIo {
 public:
  virtual ~PacketIo() = default;

  // A buffer for a packet of the MTU's length, or none while there is none. The exchange then tries again later. With
  // three buffers a ring makes progress; with Exchange::buffers() of them it never lacks one.
  [[nodiscard]] virtual Packet allocate() noexcept = 0;

  // Gives back a buffer from allocate(), or one that receive() kept.
  virtual void release(Packet packet) noexcept = 0;

  // Sends the first `bytes` bytes to the neighbour with this rank, or returns false if that is not possible now. The
  // buffer stays the exchange's, which may send it again, with another header, or release it right after the call: an
  // owner whose hardware reads it later holds a reference of its own, and returns false while an earlier transmission
  // of the same buffer is under way, or sends a copy.
  [[nodiscard]] virtual bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept = 0;

  // Whether hardware may still read this buffer for an earlier transmission to that rank. Then what is sent again goes
  // in another buffer: a new header in this one would make a packet that is damaged, or seems to be forged.
  [[nodiscard]] virtual bool is_read(unsigned rank, Packet packet) const noexcept {
    static_cast<void>(rank);
    static_cast<void>(packet);
    return false;
  }

  // What the owner has found out about the way to that rank, for the text of a failure: the longest packet of IP that
  // gets there, if not all do; else, and if it does not know, 0.
  [[nodiscard]] virtual size_t path_bytes(unsigned rank) const noexcept {
    static_cast<void>(rank);
    return 0;
  }
};

}  // namespace gradlane
