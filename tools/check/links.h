// links.h - the kernel's interfaces that ports use (main thread only)
#pragma once

#include <cstddef>
#include <string>

#include "config/config.h"
#include "tools/check/report.h"

namespace gradlane {

// Present, up, with a cable, an MTU that is large enough, and no settings that are in the way. `own`: the daemon would
// be in this network namespace; else an interface that is missing is only worth a note.
void check_interfaces(const NodeConfig& config, bool own, CheckReport& report);

// One of them. True: it is here, and nothing is wrong so far.
[[nodiscard]] bool check_interface(const PortConfig& port, const std::string& name, size_t mtu, bool own,
                                   CheckReport& report);

// 0: there is no such interface.
[[nodiscard]] size_t interface_mtu(const std::string& name);

}  // namespace gradlane
