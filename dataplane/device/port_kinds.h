// port_kinds.h - facts about DPDK's drivers that are known before a port is made (control thread only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/config.h"

namespace gradlane {

// The peculiarities of a kind of device. A device with none of them is treated like a NIC.
struct DeviceTraits {
  // Both ends are in the memory of this machine, so bytes cannot be damaged on their way.
  bool local = false;
  // In-process links: the receiver gets the very buffer that was sent.
  bool shares_buffers = false;
  // memif: the other side crashes if it polls while this side ends, because its rings are unmapped then.
  bool needs_goodbye = false;
  // The device is neither stopped nor closed, but left open until the process ends. A memif that is stopped while the
  // other side stops too may crash in DPDK's interrupt thread. A virtio_user server aborts if it is closed after its
  // client has gone. If it is stopped, it waits for the client to answer.
  bool never_closed = false;
  // memif clients: the port restarts them, because they do not reconnect by themselves, see EthdevPort::maintain().
  bool reconnects = false;
  // virtio_user servers: calls that make, start or query the device wait for the other side, without a time limit.
  bool blocks = false;
  // The driver must be given the MTU. memif does not accept one, and takes any frame that fits into its bsize.
  bool wants_mtu = false;
  // vhost and virtio_user: the port must set the MAC address, as the device has a random one or the same as all others.
  bool needs_mac = false;
  // AF_PACKET, AF_XDP, tap, sockets: packets pass through the kernel.
  bool kernel = false;
  // AF_PACKET: after a frame that is too long for its link, the device may send nothing more.
  bool stalls_on_long_frame = false;
  // Sockets: the kernel has the node's address, routes packets to others, and computes checksums.
  bool sockets = false;
  std::string socket;  // socket file that the device makes and never removes
};
[[nodiscard]] DeviceTraits traits_of(const PortConfig& config);

// Returns the number of packet buffers that one queue pair of the port holds: in its rings, received, or waiting to be
// sent.
[[nodiscard]] size_t buffers_in(const PortConfig& port);

// Returns the longest IP packet that buffers must have space for, at least `mtu`. AF_PACKET needs space for the longest
// frame that it can take. Some cards need buffers whose size is a power of two, and `powers` returns whether a port is
// such a card; EthdevPort has two functions for it. Such sizes may be too large for other cards (vmxnet3), see
// check_room().
[[nodiscard]] size_t longest_packet(std::span<const PortConfig> ports, size_t mtu, bool (&powers)(const PortConfig&));

// Throws SetupError if a driver does not support buffers with space for frames of `room` bytes.
void check_room(std::string_view driver, size_t room);
// Throws SetupError if frames of `frame` bytes would overflow the buffers of the device (memif).
void check_frames(const std::string& devargs, size_t frame);

// Returns a locally administered address that no other node has: 02:67, then the bytes of the IP address.
[[nodiscard]] MacAddress mac_of(uint32_t ip) noexcept;

// Removes the file that an earlier process has left at `path`, if it is a socket. "" means none.
void remove_socket(const std::string& path) noexcept;
// Throws SetupError if no socket can be made at `path`.
void check_socket(const std::string& path);

}  // namespace gradlane
