// kernel_needs.h - what the kernel uses an interface for, so that it must not lose it (main thread only)
#pragma once

#include <string>
#include <vector>

#include "tools/nic/host.h"

namespace gradlane {

// Returns why the machine needs these interfaces: "eth0 carries the default route"; "" if there is no reason. Reasons
// are a default route, and a TCP connection to another machine, such as SSH. Interfaces below a bond, bridge or VLAN
// count like the one above. Another reason is that the interface is a part of one: the kernel does not show which
// interfaces send through a switch of Open vSwitch.
[[nodiscard]] std::string kernel_need(const Host& host, const std::vector<std::string>& interfaces);

}  // namespace gradlane
