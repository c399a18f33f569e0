// sockets.h - checks of the kernel's sockets for a port of kind `udp` on this machine (main thread only)
#pragma once

#include "config/config.h"
#include "tools/check/report.h"

namespace gradlane {

// Returns the port that uses sockets; null if there is none.
[[nodiscard]] const PortConfig* port_of_sockets(const NodeConfig& config);

// Checks the address and its interface, the size of socket buffers, and whether one call can send and receive many
// packets. It tries this with sockets of its own, while the daemon may run.
void check_sockets(const NodeConfig& config, CheckReport& report);

}  // namespace gradlane
