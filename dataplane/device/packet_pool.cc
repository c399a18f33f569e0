// packet_pool.cc - mbuf pools (made by the control thread, used by workers)
#include "dataplane/device/packet_pool.h"

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "dataplane/device/drivers.h"
#include "dataplane/device/port_kinds.h"

namespace gradlane {
namespace {

constexpr unsigned kCache = 256;     // mbufs kept by each worker
constexpr size_t kLeastRoom = 2048;  // drivers do not work well with less

size_t room_of(size_t mtu) {
  // The frame may have two VLAN tags and Ethernet's checksum. Some cards count buffers in whole KiB. They would spread
  // a packet over two buffers if it might be longer than the whole KiB of one.
  const size_t frame = (kEthernetBytes + mtu + 2 * 4 + 4 + 1023) / 1024 * 1024;
  return RTE_PKTMBUF_HEADROOM + std::max(kLeastRoom, frame);
}

}  // namespace

PacketPool::PacketPool(const std::string& name, size_t buffers, size_t mtu, int socket) {
  for (const int where : {socket, SOCKET_ID_ANY}) {
    if (pool_ != nullptr) break;
    pool_ = rte_pktmbuf_pool_create(name.c_str(), static_cast<unsigned>(buffers), kCache, 0,
                                    static_cast<uint16_t>(room_of(mtu)), where);
    if (pool_ == nullptr && where >= 0)
      spdlog::warn("no memory for packet buffers on NUMA node {}: trying the other nodes", where);
  }
  if (pool_ != nullptr) return;
  // The mempool_ring driver manages the free buffers of a pool. If it is missing, DPDK reports an invalid argument.
  if (rte_errno == EINVAL && !driver_loaded("mempool_ring")) throw SetupError(missing_driver("mempool_ring"));
  throw SetupError("no memory for " + std::to_string(buffers) + " packet buffers of " + std::to_string(mtu) +
                   " bytes: " + rte_strerror(rte_errno) + "; a smaller exchange.window or mtu needs less");
}

PacketPool::~PacketPool() { rte_mempool_free(pool_); }  // accepts null

rte_mbuf* PacketPool::allocate() noexcept { return rte_pktmbuf_alloc(pool_); }

size_t PacketPool::bytes_needed(size_t buffers, size_t mtu) noexcept {
  // Without hugepages, no mbuf crosses the border of a 4 KiB page, and a larger one has pages of its own.
  constexpr size_t kPage = 4096;
  const size_t object = room_of(mtu) + sizeof(rte_mbuf) + 192;
  const size_t placed = object < kPage ? kPage / (kPage / object) : (object + kPage - 1) / kPage * kPage;
  const size_t bookkeeping = buffers * 64 + (size_t{3} << 20);  // rings, caches of threads
  return buffers * placed + bookkeeping;
}

Packet packet_of(rte_mbuf* mbuf) noexcept { return {rte_pktmbuf_mtod_offset(mbuf, uint8_t*, kFrameBytes), mbuf}; }

Packet fresh_packet(rte_mbuf* mbuf) noexcept {
  return {static_cast<uint8_t*>(mbuf->buf_addr) + RTE_PKTMBUF_HEADROOM + kFrameBytes, mbuf};
}

void make_frame(rte_mbuf* mbuf, const DatagramPath& path) noexcept {
  const Flow flow = {.source_mac = mac_of(path.source_ip),
                     .destination_mac = mac_of(path.destination_ip),
                     .source_ip = path.source_ip,
                     .destination_ip = path.destination_ip,
                     .source_port = path.source_port,
                     .destination_port = path.destination_port};
  write_headers(rte_pktmbuf_mtod(mbuf, uint8_t*), flow, path.tos, mbuf->data_len - kFrameBytes);
}

}  // namespace gradlane
