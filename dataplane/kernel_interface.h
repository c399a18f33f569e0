// kernel_interface.h - network interfaces of the kernel that ports use (control thread only)
#pragma once

#include <cstddef>
#include <string>

#include "config/config.h"
#include "dataplane/server_fd.h"

namespace gradlane {

[[nodiscard]] bool is_af_packet(const PortConfig& port) noexcept;
[[nodiscard]] bool is_af_xdp(const PortConfig& port) noexcept;

// AF_PACKET and AF_XDP devices name an interface, that must exist and take packets of the MTU: throws SetupError if
// not, with what to do. Returns what the log should warn of: "" or that it is down. Other devices are fine.
[[nodiscard]] std::string check_kernel_interface(const PortConfig& port, size_t mtu);

// What DPDK's AF_PACKET does not tell: up, and with a link. `index`: of the interface.
[[nodiscard]] bool interface_running(unsigned index) noexcept;

// The interface takes frames for whomever, as long as this is open. Throws SetupError.
[[nodiscard]] FileDescriptor make_promiscuous(unsigned index);

// The NUMA node of a CPU; -1: not known. `root` is /sys/devices/system, but in tests.
[[nodiscard]] int numa_node_of(unsigned cpu, const std::string& root = "/sys/devices/system");

}  // namespace gradlane
