// sockets.h - what sockets of the kernel give to a port of kind `udp` on this machine (main thread only)
#pragma once

#include "config/config.h"
#include "tools/check/report.h"

namespace gradlane {

// The port of sockets, if there is one.
[[nodiscard]] const PortConfig* port_of_sockets(const NodeConfig& config);

// Its address and the interface that has it, room in sockets, whether many packets go in one call. Tries it with
// sockets of its own, beside the daemon's.
void check_sockets(const NodeConfig& config, CheckReport& report);

}  // namespace gradlane
