// capabilities.cc - requests for MTU and checksums, within what a device reports (control thread only)
#include "dataplane/device/capabilities.h"

#include <rte_ethdev.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "base/error.h"
#include "config/devargs.h"
#include "dataplane/kernel/kernel_interface.h"

namespace gradlane {
namespace {

// Returns the bytes of a frame outside the IP packet, as rte_ethdev computes them.
uint32_t overhead_of(const rte_eth_dev_info& info) noexcept {
  const bool told = info.max_mtu != UINT16_MAX && info.max_rx_pktlen > info.max_mtu;
  return told ? info.max_rx_pktlen - info.max_mtu : RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
}

}  // namespace

void ask_for_mtu(const rte_eth_dev_info& info, const PortConfig& port, const DeviceTraits& traits, size_t mtu,
                 size_t room, rte_eth_conf& conf) {
  if (info.min_rx_bufsize > room) {
    throw SetupError(fmt::format("the device needs buffers of {} bytes, but with mtu {} they have {}",
                                 info.min_rx_bufsize, mtu, room));
  }
  // AF_PACKET and memif report an MTU of 1500, whatever they accept. The loader of the configuration checks their
  // buffers.
  const bool silent = traits.local || is_af_packet(port);
  if (silent && !traits.wants_mtu) return;
  const uint32_t overhead = overhead_of(info);
  const uint32_t longest = info.max_rx_pktlen > overhead ? info.max_rx_pktlen - overhead : 0;
  const uint32_t most = std::min(longest, uint32_t{info.max_mtu});
  if (mtu > most) throw SetupError(fmt::format("the device supports an MTU of at most {}, but mtu is {}", most, mtu));
  if (mtu > RTE_ETHER_MTU) conf.rxmode.mtu = static_cast<uint32_t>(mtu);
}

bool ask_for_checksums(const rte_eth_dev_info& info, const DeviceTraits& traits, rte_eth_conf& conf) {
  if (traits.local) return false;
  conf.rxmode.offloads |= info.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
  constexpr uint64_t kBoth = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
  if ((info.tx_offload_capa & kBoth) != kBoth) return false;
  conf.txmode.offloads |= kBoth;
  return true;
}

}  // namespace gradlane
