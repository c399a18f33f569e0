// port_kinds.h - what is known of DPDK's drivers when a port is made (control thread only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/config.h"

namespace gradlane {

// How a device of this kind wants to be treated. Nothing of the below: like a NIC.
struct DeviceTraits {
  // Both ends are in the memory of this machine: nothing happens to bytes on their way.
  bool local = false;
  // What is sent arrives as the same buffer (in-process links).
  bool shares_buffers = false;
  // memif: the other side crashes if it polls while this side ends, as its rings are unmapped then.
  bool needs_goodbye = false;
  // Neither stopped nor closed, but left to the end of the process. A memif that is stopped while the other side is,
  // too, may crash in DPDK's interrupt thread; a virtio_user server aborts if it is closed when its client has gone,
  // and waits for an answer from it if it is stopped.
  bool left_to_the_end = false;
  // memif clients: do not come back by themselves, see Port::tend().
  bool reconnects = false;
  // virtio_user servers: calls that make, start or look at them wait for the other side, for however long that takes.
  bool blocks = false;
  // The length of packets must be told; memif refuses to hear of it, and takes any frame of its bsize.
  bool wants_mtu = false;
  // vhost and virtio_user: a random address each time, or the same for all.
  bool needs_mac = false;
  // AF_PACKET, AF_XDP, tap, sockets: packets pass through the kernel.
  bool kernel = false;
  // AF_PACKET: may send nothing more behind a frame that is too long for its link.
  bool sticks = false;
  // Sockets: the kernel has the node's address, knows the way to others, and computes checksums.
  bool sockets = false;
  std::string socket;  // the file that it makes, and never removes
};
[[nodiscard]] DeviceTraits traits_of(const PortConfig& config);

// Packet buffers that one of its queue pairs holds on to: in its rings, received, waiting to be sent.
[[nodiscard]] size_t buffers_in(const PortConfig& port);

// AF_PACKET wants buffers with room for all of its own, and some cards a power of two, of which others (vmxnet3) cannot
// be told: the longest packet that has room then. `powers`: whether a port is of these cards; EthdevPort knows.
[[nodiscard]] size_t longest_packet(std::span<const PortConfig> ports, size_t mtu, bool (&powers)(const PortConfig&));

// Throws SetupError if a driver cannot be told of buffers that have room for so many bytes of a frame.
void check_room(std::string_view driver, size_t room);
// Throws SetupError if frames of so many bytes would damage its memory.
void check_frames(const std::string& devargs, size_t frame);

// A locally administered address that no other node has: 02:67:10.77.0.1.
[[nodiscard]] MacAddress mac_of(uint32_t ip) noexcept;

// Removes what an earlier process has left there, if it is a socket. "" is none.
void remove_socket(const std::string& path) noexcept;
// Throws SetupError if no socket can be made there.
void check_socket(const std::string& path);

}  // namespace gradlane
