// packet_socket.h - functions that DPDK's AF_PACKET device lacks, for the packet socket inside it (control thread;
// push_ring(): worker)
#pragma once

#include <cstdint>

namespace gradlane {

// Keeps devices that are made in its lifetime (control thread) out of PACKET_FANOUT groups. DPDK puts the socket of
// each queue into such a group, which makes the kernel reassemble IP fragments. A device with one queue needs no group,
// and then fragments arrive unchanged. This works only in executables that export setsockopt(), see meson.build.
class WithoutFanout {
 public:
  WithoutFanout() noexcept;
  ~WithoutFanout();
  WithoutFanout(const WithoutFanout&) = delete;
  WithoutFanout& operator=(const WithoutFanout&) = delete;
};

// Returns the socket of this process that receives all frames of a kernel interface, or -1. The caller must not close
// it.
[[nodiscard]] int find_packet_socket(unsigned interface) noexcept;

// Stops the socket from receiving frames that the kernel itself sends on the interface. Returns false if the kernel
// does not support that.
bool ignore_outgoing(int socket) noexcept;

// Returns whether the kernel reassembles IP fragments before they reach the socket.
[[nodiscard]] bool reassembles(int socket) noexcept;

// Returns the number of frames that were lost since the last call because the socket's ring was full.
[[nodiscard]] uint64_t take_missed(int socket) noexcept;

// Sends frames that wait in the socket's send ring (worker thread). They wait if the interface's queue was full, and
// would otherwise stay there until the next frame is sent. Returns true if none is left.
[[nodiscard]] bool push_ring(int socket) noexcept;

}  // namespace gradlane
