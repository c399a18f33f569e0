// packet_pool.h - packet buffers (mbufs) of a node, and the position of packets in them (control thread; worker
// threads)
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

// SOCKET_ID_ANY as an unsigned number, as DPDK's functions for devices take it.
inline constexpr unsigned kAnySocket = ~0U;

// A pool whose size is fixed at construction (control thread). Any worker takes and returns buffers.
class PacketPool {
 public:
  // Makes `buffers` buffers, each with space for an IP packet of `mtu` bytes in one segment. They are in memory of NUMA
  // node `socket` if it has enough, otherwise of any node (-1: any). Throws SetupError.
  PacketPool(const std::string& name, size_t buffers, size_t mtu, int socket = -1);
  ~PacketPool();
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;

  // Keeps the destructor from freeing the pool. At the end of the process, freeing would make EAL write zeros over all
  // of its memory.
  void abandon() noexcept { pool_ = nullptr; }

  [[nodiscard]] rte_mempool* mempool() const noexcept { return pool_; }
  [[nodiscard]] rte_mbuf* allocate() noexcept;  // null: none left

  // Returns the bytes of memory that EAL needs for such a pool.
  [[nodiscard]] static size_t bytes_needed(size_t buffers, size_t mtu) noexcept;

 private:
  rte_mempool* pool_ = nullptr;
};

// Both return a buffer as the exchange sees it. The link header follows the headers of Ethernet, IP and UDP.
[[nodiscard]] Packet packet_of(rte_mbuf* mbuf) noexcept;  // the frame is at the start of the mbuf's data
[[nodiscard]] Packet fresh_packet(rte_mbuf* mbuf) noexcept;

// Where a packet of a socket comes from or goes to, as headers of a frame would say it, in host byte order.
struct DatagramPath {
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t tos = 0;
  bool operator==(const DatagramPath&) const = default;
};
// Writes the headers of a frame before a packet of a socket, for what needs them.
void make_frame(rte_mbuf* mbuf, const DatagramPath& path) noexcept;

}  // namespace gradlane
