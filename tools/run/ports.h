// ports.h - ports of the loopback interface that nobody uses now (main thread)
#pragma once

namespace gradlane {

// A TCP port of 127.0.0.1. In the namespaces of a run, which are new, no port is used. Throws SetupError.
[[nodiscard]] unsigned free_port();

// Whether the `count` UDP ports of ::1 from `first` on are free.
[[nodiscard]] bool are_free_udp_ports(unsigned first, unsigned count);

}  // namespace gradlane
