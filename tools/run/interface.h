// interface.h - what interfaces of `gradlane run` are like: names, rates, offloads, the daemons' packet sockets
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gradlane {

inline constexpr const char* kVethName = "gl0";     // of the interface in each node's namespace
inline constexpr const char* kInsideName = "eth0";  // of the kernel's own interface there, with --inside
inline constexpr const char* kHostPortName =
    "gla0";  // of its other end, where an accelerator takes what the kernel sends
inline constexpr const char* kWirePortName = "glw0";  // of the accelerator's end of the cable

// Bits per second, of what tc calls a rate: "1gbit", "200mbit", "2.5Gbit". Throws SetupError.
[[nodiscard]] uint64_t parse_rate(const std::string& text);

// Of the shaper at either end of a cable.
struct ShaperSizes {
  uint64_t burst;  // bytes that may go at once
  uint64_t limit;  // bytes that may wait; what comes then is dropped
};
[[nodiscard]] ShaperSizes shaper_sizes(uint64_t rate, size_t mtu);

// The DPDK device of a node: AF_PACKET on its interface, with frames that fit the MTU.
[[nodiscard]] std::string veth_device(size_t mtu);
// The same of a port of an accelerator, through which frames with a VLAN tag go too. Each of a daemon's has its number.
[[nodiscard]] std::string accelerator_device(unsigned number, const std::string& interface, size_t mtu);

// Of what is below /proc/sys/net, in the namespace where this process is. Without that part of the kernel there is
// nothing to set.
void set_kernel(const std::string& name, const std::string& value);

// In the namespace where this process is: each frame is what it will be on a cable, with all its checksums. Throws
// SetupError.
void turn_offloads_off(const std::string& interface);

}  // namespace gradlane
