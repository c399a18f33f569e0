// links.h - checks of the kernel's interfaces that ports use (main thread only)
#pragma once

#include <cstddef>
#include <string>

#include "config/config.h"
#include "tools/check/report.h"

namespace gradlane {

// Checks that the interfaces exist, are up, have a carrier and a large enough MTU, and that no settings cause trouble.
// `own` means that the daemon would run in this network namespace. Otherwise a missing interface is only a note.
void check_interfaces(const NodeConfig& config, bool own, CheckReport& report);

// Checks one interface. Returns true if it exists and these checks find no fault.
[[nodiscard]] bool check_interface(const PortConfig& port, const std::string& name, size_t mtu, bool own,
                                   CheckReport& report);

// Returns the MTU; 0 if there is no such interface.
[[nodiscard]] size_t interface_mtu(const std::string& name);

}  // namespace gradlane
