// superpacket_socket.h - a UDP socket of the kernel that takes and gives many packets in one call: UDP_SEGMENT and
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

// The port in host byte order.
struct Endpoint {
  IpAddress ip{};
  uint16_t port = 0;
  auto operator<=>(const Endpoint&) const = default;
};
[[nodiscard]] std::string endpoint_text(const Endpoint& endpoint);  // "10.77.0.1:18400", "[fd00::1]:18400"

class SuperpacketSocket {
 public:
  // Of one call. More, or more bytes, are refused by kernels (128 segments since Linux 6.10, 64 before).
  static constexpr size_t kMostPackets = 44;
  static constexpr size_t kMostBytes = 65507;

  // `receive_bytes`: wanted for what came and was not fetched yet. `any`: at any address of this machine's that is of
  // the kind of `local`, whose address may be that of a translator on the way. Throws SetupError.
  SuperpacketSocket(const Endpoint& local, size_t receive_bytes, bool any = false);

  // What came with one call: packets of `each` bytes side by side, the last one may be shorter; all of one sender, with
  // one ToS.
  struct Arrival {
    bool came = false;  // else nothing is there
    size_t bytes = 0;   // in all
    size_t each = 0;
    Endpoint from{};
    uint8_t tos = 0;
    bool cut = false;  // there was more than the room offered
  };
  // Fills `room` from its front on.
  [[nodiscard]] Arrival receive(iovec* room, size_t parts) noexcept;

  // What became of packets that were to be sent.
  enum class Sent : uint8_t {
    kYes,
    kLater,   // the queue is full
    kLost,    // the kernel will not: a filter, no route
    kSingly,  // not as a superpacket
    kTooLong  // for the device
  };
  // Packets of `each` bytes, an iovec for each, the last one may be shorter. `each` of 0: one packet.
  [[nodiscard]] Sent send(const Endpoint& to, uint8_t tos, iovec* packets, size_t count, size_t each) noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  // As granted: net.core.rmem_max may allow less than was wanted.
  [[nodiscard]] size_t receive_bytes() const noexcept { return receive_bytes_; }

 private:
  FileDescriptor socket_;
  bool of_ipv6_ = false;
  bool superpackets_ = false;  // before Linux 4.18 the kernel would make one packet of them
  size_t receive_bytes_ = 0;
};

}  // namespace gradlane
