// kernel_interface.h - network interfaces of the kernel that ports use (control thread only)
#pragma once

#include <cstddef>
#include <string>

#include "base/file_descriptor.h"
#include "config/config.h"

namespace gradlane {

// Checks the kernel interface of an AF_PACKET or AF_XDP device; other devices are fine. The interface must exist and
// take packets of the MTU. If the kernel has an address there, AF_XDP must leave some queues to the kernel. Throws
// SetupError, with advice, if a check fails. Returns a warning for the log if the interface is down, or if AF_XDP takes
// packets away from the kernel; else "".
[[nodiscard]] std::string check_kernel_interface(const PortConfig& port, size_t mtu);

// An address of the kernel that AF_XDP cuts off from arriving packets, such as "192.168.1.5"; empty if there is none.
// `all`: no packet reaches the kernel, because the device takes all queues of the interface.
struct CutOff {
  std::string address;
  bool all = false;
};
[[nodiscard]] CutOff cut_off_by_xdp(const PortConfig& port);
[[nodiscard]] std::string cut_off_text(const PortConfig& port, const CutOff& what);
[[nodiscard]] std::string cut_off_advice(const PortConfig& port);

// Returns an address that the kernel has on the interface, an IPv4 one if possible. Link-local IPv6 addresses, which
// every interface has, do not count. Returns "" if there is none.
[[nodiscard]] std::string address_on(const std::string& interface);

// Returns the name of the interface to which the kernel has given this address; empty: none.
[[nodiscard]] std::string owner_of(const IpAddress& ip);

// Returns the MTU of IP on the interface; SIZE_MAX: not known.
[[nodiscard]] size_t mtu_of(const std::string& name) noexcept;

// Returns whether an interface with this index still exists.
[[nodiscard]] bool interface_there(unsigned index) noexcept;

// Returns whether the interface with this index is up and has a link. DPDK's AF_PACKET does not report that.
[[nodiscard]] bool interface_running(unsigned index) noexcept;

// Makes the interface take frames for any destination, as long as the returned descriptor is open. Throws SetupError.
[[nodiscard]] FileDescriptor make_promiscuous(unsigned index);

// Returns the NUMA node of a CPU; -1: not known. Tests use another `root`.
[[nodiscard]] int numa_node_of(unsigned cpu, const std::string& root = "/sys/devices/system");

}  // namespace gradlane
