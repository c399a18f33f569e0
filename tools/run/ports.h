// ports.h - ports of the loopback interface that are free now (main thread)
#pragma once

namespace gradlane {

// Returns a free TCP port of 127.0.0.1. It is also free in the namespaces of a run, which are new. Throws SetupError.
[[nodiscard]] unsigned free_port();

// Returns whether the `count` UDP ports of ::1 from `first` on are free.
[[nodiscard]] bool are_free_udp_ports(unsigned first, unsigned count);

}  // namespace gradlane
