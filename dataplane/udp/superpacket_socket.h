// superpacket_socket.h - a UDP socket of the kernel that sends and receives many packets per call, by UDP_SEGMENT and
// UDP_GRO (udp(7); worker thread only; no DPDK)
#pragma once

#include <sys/uio.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/file_descriptor.h"
#include "config/config.h"

namespace gradlane {

// An IP address and a port, which is in host byte order.
struct Endpoint {
  IpAddress ip{};
  uint16_t port = 0;
  auto operator<=>(const Endpoint&) const = default;
};
[[nodiscard]] std::string endpoint_text(const Endpoint& endpoint);  // "10.77.0.1:18400", "[fd00::1]:18400"

class SuperpacketSocket {
 public:
  // Limits of one call. Kernels refuse more bytes, and more than 64 packets (128 since Linux 6.10).
  static constexpr size_t kMostPackets = 44;
  static constexpr size_t kMostBytes = 65507;

  // Makes and binds the socket. `receive_bytes` is the buffer size to ask for, for packets that were not fetched yet.
  // `any` binds to all addresses of this machine that are of the same kind as `local`. Then the address in `local` may
  // be that of a NAT on the way. Throws SetupError.
  SuperpacketSocket(const Endpoint& local, size_t receive_bytes, bool any = false);

  // The packets that one call received. They lie side by side and have `each` bytes; the last one may be shorter. All
  // have one sender and one ToS.
  struct Arrival {
    bool came = false;  // false: there was nothing to receive
    size_t bytes = 0;   // sum of all packets
    size_t each = 0;
    Endpoint from{};
    uint8_t tos = 0;
    bool cut = false;  // whether the packets did not fit into the buffers
  };
  // Receives into the `parts` buffers of `room`, from the first one on.
  [[nodiscard]] Arrival receive(iovec* room, size_t parts) noexcept;

  // The result of a call that sends packets.
  enum class Sent : uint8_t {
    kYes,
    kLater,   // the queue is full
    kLost,    // the kernel refuses to send them: a filter, no route
    kSingly,  // the kernel does not take a superpacket here
    kTooLong  // too long for the device
  };
  // Sends the bytes of `count` iovecs as packets of `each` bytes; the last one may be shorter. An `each` of 0 means one
  // packet.
  [[nodiscard]] Sent send(const Endpoint& to, uint8_t tos, iovec* iovecs, size_t count, size_t each) noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  // Returns the buffer size that the kernel has granted. net.core.rmem_max may allow less than was asked for.
  [[nodiscard]] size_t receive_bytes() const noexcept { return receive_bytes_; }

 private:
  FileDescriptor socket_;
  bool of_ipv6_ = false;
  bool superpackets_ = false;  // false: the kernel is older than Linux 4.18, and would send a superpacket as one packet
  size_t receive_bytes_ = 0;
};

}  // namespace gradlane
