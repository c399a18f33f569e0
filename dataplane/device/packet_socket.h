// packet_socket.h - the packet socket inside DPDK's AF_PACKET device, and what the device does not say or do with it
#pragma once

#include <cstdint>

namespace gradlane {

// DPDK puts the socket of a queue into a PACKET_FANOUT group that has the kernel put IP fragments together. Devices
// that are made while one of these lives (control thread) have no group, and need none for one queue: fragments arrive
// as they are. Only in executables that export setsockopt(), see meson.build.
class WithoutFanout {
 public:
  WithoutFanout() noexcept;
  ~WithoutFanout();
  WithoutFanout(const WithoutFanout&) = delete;
  WithoutFanout& operator=(const WithoutFanout&) = delete;
};

// The socket of this process that receives all frames of an interface of the kernel; it is not the caller's. -1: none.
[[nodiscard]] int find_packet_socket(unsigned interface) noexcept;

// What the kernel sends there itself does not arrive from now on. False: this kernel cannot do that.
bool ignore_outgoing(int socket) noexcept;

// IP fragments are put together on their way to it.
[[nodiscard]] bool reassembles(int socket) noexcept;

// Frames that came and got lost since this was last asked: its ring was full.
[[nodiscard]] uint64_t take_missed(int socket) noexcept;

// Frames that were put into its ring to be sent may wait there for the next ones, when the queue behind it had no place
// for them. Sends those (worker thread); true if nothing is left there.
[[nodiscard]] bool push_ring(int socket) noexcept;

}  // namespace gradlane
