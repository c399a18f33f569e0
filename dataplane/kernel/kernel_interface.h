// kernel_interface.h - network interfaces of the kernel that ports use (control thread only)
#pragma once

#include <cstddef>
#include <string>

#include "base/file_descriptor.h"
#include "config/config.h"

namespace gradlane {

// AF_PACKET and AF_XDP devices name an interface, that must exist and take packets of the MTU, and
// AF_XDP must leave an address of the kernel's there some queues: throws SetupError if not, with what to do. Returns
// what the log should warn of: "", that it is down, or what AF_XDP cuts off. Other devices are fine.
[[nodiscard]] std::string check_kernel_interface(const PortConfig& port, size_t mtu);

// An address of the kernel's that AF_XDP cuts off from what arrives: "192.168.1.5"; or nothing. `all`: no packet
// gets to the kernel, as the device takes all queues of the interface.
struct CutOff {
  std::string address;
  bool all = false;
};
[[nodiscard]] CutOff cut_off_by_xdp(const PortConfig& port);
[[nodiscard]] std::string cut_off_text(const PortConfig& port, const CutOff& what);
[[nodiscard]] std::string cut_off_advice(const PortConfig& port);

// An address that the kernel has on that interface, one of IPv4 first; none of those that every interface has for its
// link. Empty: none.
[[nodiscard]] std::string address_on(const std::string& interface);

// The name of the interface to which the kernel has given this address; empty: none.
[[nodiscard]] std::string owner_of(const IpAddress& ip);

// Of IP, on that interface; SIZE_MAX: not known.
[[nodiscard]] size_t mtu_of(const std::string& name) noexcept;

// Whether there still is an interface of that index.
[[nodiscard]] bool interface_there(unsigned index) noexcept;

// What DPDK's AF_PACKET does not tell: up, and with a link. `index`: of the interface.
[[nodiscard]] bool interface_running(unsigned index) noexcept;

// The interface takes frames for whomever, as long as this is open. Throws SetupError.
[[nodiscard]] FileDescriptor make_promiscuous(unsigned index);

// The NUMA node of a CPU; -1: not known. `root` is /sys/devices/system, but in tests.
[[nodiscard]] int numa_node_of(unsigned cpu, const std::string& root = "/sys/devices/system");

}  // namespace gradlane
