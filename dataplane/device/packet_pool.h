// packet_pool.h - packet buffers of a node (mbufs), and where in them packets lie
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/packet_io.h"
#include "dataplane/frame/frame.h"

struct rte_mbuf;
struct rte_mempool;

namespace gradlane {

// As DPDK's functions for devices take it: SOCKET_ID_ANY, in an unsigned parameter.
inline constexpr unsigned kAnySocket = ~0U;

// Fixed at construction (control thread); buffers are taken and given back by any worker.
class PacketPool {
 public:
  // `buffers` of them, each with room for an IP packet of `mtu` bytes in one segment, in memory of that NUMA node if it
  // has some (-1: of any). Throws SetupError.
  PacketPool(const std::string& name, size_t buffers, size_t mtu, int socket = -1);
  ~PacketPool();
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;

  // Not to be freed: at the end of the process, where EAL would write zeros over all of it.
  void abandon() noexcept { pool_ = nullptr; }

  [[nodiscard]] rte_mempool* mempool() const noexcept { return pool_; }
  [[nodiscard]] rte_mbuf* allocate() noexcept;  // null: none left

  // Memory that EAL must have for one.
  [[nodiscard]] static size_t bytes_needed(size_t buffers, size_t mtu) noexcept;

 private:
  rte_mempool* pool_ = nullptr;
};

// A buffer as the exchange sees it: its link header follows the headers of Ethernet, IP and UDP.
[[nodiscard]] Packet packet_of(rte_mbuf* mbuf) noexcept;  // frame at the start of the mbuf's data
[[nodiscard]] Packet fresh_packet(rte_mbuf* mbuf) noexcept;

}  // namespace gradlane
