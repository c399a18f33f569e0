// reach.h - test whether datagrams reach a host, by the errors that the kernel reports (main thread only)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/udp/superpacket_socket.h"

namespace gradlane {

enum class Reach : uint8_t {
  kNoError,      // no error came back: the datagram arrived, or was dropped on the way
  kRefused,      // no socket has that port there
  kUnreachable,  // no such host, or no route to it
  kForbidden,    // this machine does not let the datagram out
};

// Sends a byte to each endpoint, again and again, until each has caused an error, or for 3.5 s. The kernel asks that
// long for the MAC address of a host in its own network. `from` is an address of this machine; null: any.
[[nodiscard]] std::vector<Reach> reach(const IpAddress* from, std::span<const Endpoint> to);

}  // namespace gradlane
