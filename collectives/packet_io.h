// packet_io.h - the interface between an exchange and its owner, which has the packet buffers and moves packets
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// A packet buffer. `data` points to where the link header goes. The exchange knows nothing else about the buffer.
struct Packet {
  uint8_t* data = nullptr;
  void* handle = nullptr;  // for the owner only

  explicit operator bool() const noexcept { return data != nullptr; }
};

// A destination for filled packets.
class PacketSink {
 public:
  // Returns whether take() may be called now. A control packet may be accepted when data packets are not.
  [[nodiscard]] virtual bool takes(bool control) const noexcept = 0;
  // Takes a packet whose bytes after the link header are complete and have the CRC state `payload_crc`. The buffer
  // belongs to the sink from now on. Call it only if takes() is true.
  virtual void take(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept = 0;

 protected:
  PacketSink() = default;
  PacketSink(const PacketSink&) = default;
  PacketSink(PacketSink&&) = default;
  PacketSink& operator=(const PacketSink&) = default;
  PacketSink& operator=(PacketSink&&) = default;
  ~PacketSink() = default;
};

// The owner of an Exchange implements this: a lane over DPDK, or a simulated network. It is called from the thread that
// calls the Exchange.
class PacketIo {
 public:
  virtual ~PacketIo() = default;

  // Returns a buffer for a packet of MTU length, or an empty Packet if none is free; then the exchange tries again
  // later. A ring makes progress with three buffers. If the owner has Exchange::buffers() buffers, this never fails.
  [[nodiscard]] virtual Packet allocate() noexcept = 0;

  // Takes back a buffer from allocate(), or one that receive() kept.
  virtual void release(Packet packet) noexcept = 0;

  // Sends the first `bytes` bytes to the neighbour with this rank. Returns false if that is not possible now. The
  // buffer still belongs to the exchange, which may send it again with another header, or release it right after the
  // call. If hardware reads the buffer later, the owner must hold a reference of its own. While an earlier transmission
  // of the same buffer is not finished, such an owner must return false or send a copy.
  [[nodiscard]] virtual bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept = 0;

  // Returns whether hardware may still read this buffer for an earlier transmission to that rank. If so, the exchange
  // retransmits from another buffer: a new header in this one could damage the packet that is being sent, or invalidate
  // its authentication tag.
  [[nodiscard]] virtual bool is_read(unsigned rank, Packet packet) const noexcept {
    static_cast<void>(rank);
    static_cast<void>(packet);
    return false;
  }

  // Returns the length of the longest IP packet that gets to that rank, for failure texts. Returns 0 if packets of all
  // lengths get there, or if the owner does not know.
  [[nodiscard]] virtual size_t path_bytes(unsigned rank) const noexcept {
    static_cast<void>(rank);
    return 0;
  }
};

}  // namespace gradlane
