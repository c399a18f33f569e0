// reach.h - whether a datagram gets to a host, as far as the kernel is told (main thread only)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/udp/superpacket_socket.h"

namespace gradlane {

enum class Reach : uint8_t {
  kNoWord,     // nothing comes back: it was taken, or dropped on the way
  kRefused,    // nobody has that port there
  kAway,       // no such host, or no way to it
  kForbidden,  // this machine does not let it out
};

// A byte to each of these, again and again, until something is said of each, or for some seconds: so long the kernel
// asks for a host of its own network. `from`: an address of this machine; null: any.
[[nodiscard]] std::vector<Reach> reach(const IpAddress* from, std::span<const Endpoint> to);

}  // namespace gradlane
