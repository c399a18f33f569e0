// interface.h - the interfaces of `gradlane run`: names, rates, offloads, the daemons' packet sockets (main thread:
// set-up)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gradlane {

inline constexpr const char* kVethName = "gl0";     // gradlane's interface in each node's namespace
inline constexpr const char* kInsideName = "eth0";  // the kernel's interface in each node's namespace, with --inside
inline constexpr const char* kHostPortName =
    "gla0";  // other end of kVethName, where an accelerator receives what the kernel sends
inline constexpr const char* kWirePortName = "glw0";  // accelerator's interface to the switch

// Returns bits per second of a rate as tc writes it: "1gbit", "200mbit", "2.5Gbit". Throws SetupError.
[[nodiscard]] uint64_t parse_rate(const std::string& text);

// Sizes of the shaper at each end of a veth pair.
struct ShaperSizes {
  uint64_t burst;  // bytes that may be sent at once
  uint64_t limit;  // bytes that may wait; packets beyond are dropped
};
[[nodiscard]] ShaperSizes shaper_sizes(uint64_t rate, size_t mtu);

// Returns the DPDK device of a node: AF_PACKET on its interface, with frames that fit the MTU.
[[nodiscard]] std::string veth_device(size_t mtu);
// Returns the DPDK device for a port of an accelerator, where frames with a VLAN tag also fit. Each device of a daemon
// needs another `number`.
[[nodiscard]] std::string accelerator_device(unsigned number, const std::string& interface, size_t mtu);

// Sets a parameter below /proc/sys/net, in the network namespace of this process. Does nothing if the kernel lacks it.
void set_kernel(const std::string& name, const std::string& value);

// Turns offloads of an interface off, in the network namespace of this process. Each frame is then as on a physical
// link, with all its checksums. Throws SetupError.
void turn_offloads_off(const std::string& interface);

}  // namespace gradlane
