// port.cc - making and starting DPDK devices (control thread only)
#include "dataplane/port.h"

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "compress/error.h"
#include "dataplane/frame.h"
#include "dataplane/packet_pool.h"

namespace gradlane {
namespace {

constexpr unsigned kRingPackets = 512;
constexpr uint16_t kDescriptors = 512;
constexpr unsigned kPatience = 10;  // looks at a link, 100 ms apart, before its client tries again

// "net_memif0" of "net_memif0,role=server,...".
std::string driver_of(const std::string& devargs) { return devargs.substr(0, devargs.find(',')); }

// The value of a key of devargs, or nothing.
std::string value_of(const std::string& devargs, const std::string& key) {
  const size_t at = devargs.find("," + key + "=");
  if (at == std::string::npos) return "";
  const size_t start = at + key.size() + 2;
  return devargs.substr(start, devargs.find(',', start) - start);
}

// Frames beyond memif's bsize corrupt its rings.
void check_memif(const std::string& devargs, size_t frame) {
  size_t bsize = 2048;
  const std::string value = value_of(devargs, "bsize");
  std::from_chars(value.data(), value.data() + value.size(), bsize);
  if (bsize < frame) {
    throw SetupError("bsize is " + std::to_string(bsize) + ", and frames have up to " + std::to_string(frame) +
                     " bytes: say bsize=9216, on both sides");
  }
}

// The file that a memif server makes; none for clients and abstract sockets (the default).
std::string memif_socket(const std::string& devargs) {
  const bool file = value_of(devargs, "socket-abstract") == "no";
  return file && value_of(devargs, "role") == "server" ? value_of(devargs, "socket") : "";
}

}  // namespace

// ---- In-process links

RingLinks::~RingLinks() {
  for (auto& [name, link] : links_) {
    for (const auto& rings : {link.there, link.back}) {
      for (rte_ring* const ring : rings) rte_ring_free(ring);
    }
  }
}

void RingLinks::drain() noexcept {
  for (auto& [name, link] : links_) {
    for (const auto& rings : {&link.there, &link.back}) {
      for (rte_ring* const ring : *rings) {
        for (void* packet = nullptr; rte_ring_dequeue(ring, &packet) == 0;) {
          rte_pktmbuf_free(static_cast<rte_mbuf*>(packet));
        }
      }
    }
  }
}

RingLinks::End RingLinks::take(const std::string& name, unsigned lanes) {
  Link& link = links_[name];
  if (link.ends == 2) throw SetupError("ring '" + name + "' has two ends already, and a link has no more");
  if (link.ends == 1 && link.there.size() != lanes) {
    throw SetupError("ring '" + name + "' has " + std::to_string(link.there.size()) +
                     " lanes on its other end, and workers.lanes is " + std::to_string(lanes) + " here");
  }
  if (++link.ends == 1) {
    for (unsigned lane = 0; lane < lanes; ++lane) {
      for (auto* const rings : {&link.there, &link.back}) {
        const std::string unique = name.substr(0, 16) + (rings == &link.there ? ">" : "<") + std::to_string(lane) +
                                   "." + std::to_string(links_.size());
        rte_ring* const ring =
            rte_ring_create(unique.c_str(), kRingPackets, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
        if (ring == nullptr) throw SetupError("no memory for ring '" + name + "'");
        rings->push_back(ring);
      }
    }
    return {link.back, link.there};
  }
  return {link.there, link.back};
}

void RingLinks::check_all_have_two_ends() const {
  for (const auto& [name, link] : links_) {
    if (link.ends == 2) continue;
    throw SetupError("ring '" + name + "' has only one end: the other one is a port of another node of this process; " +
                     "give gradlaned a --config for each");
  }
}

// ---- Ports

Port::Port(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools, RingLinks& links,
           const std::string& unique)
    : name_(config.name), nodes_(config.nodes) {
  try {
    make_device(config, node, links, unique);
    start(config, node, pools);
  } catch (const SetupError& error) {
    if (made_) rte_eth_dev_close(id_);
    fail(error.what());
  }
}

Port::~Port() {
  remove_socket();
  if (!made_ || needs_goodbye_) return;
  if (started()) rte_eth_dev_stop(id_);
  rte_eth_dev_close(id_);
}

void Port::remove_socket() const noexcept {
  struct stat status {};
  if (!socket_.empty() && lstat(socket_.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) unlink(socket_.c_str());
}

void Port::fail(const std::string& text) const { throw SetupError("port " + name_ + ": " + text); }

void Port::make_device(const PortConfig& config, const NodeConfig& node, RingLinks& links, const std::string& unique) {
  if (config.kind == PortConfig::Kind::kRing) {
    const RingLinks::End end = links.take(config.device, node.lanes);
    const int id = rte_eth_from_rings(("ring_" + unique).c_str(), const_cast<rte_ring**>(end.rx.data()), node.lanes,
                                      const_cast<rte_ring**>(end.tx.data()), node.lanes, kAnySocket);
    if (id < 0) throw SetupError("no in-process ring device could be made");
    id_ = static_cast<uint16_t>(id);
    shares_buffers_ = true;
    made_ = true;
    return;
  }
  if (config.kind == PortConfig::Kind::kDevice && config.device.starts_with("net_memif")) {
    check_memif(config.device, node.mtu + kEthernetBytes);
    needs_goodbye_ = true;
    reconnects_ = value_of(config.device, "role") != "server";
    socket_ = memif_socket(config.device);
    // A file that an earlier process left keeps the server from starting.
    remove_socket();
  }
  // A virtual device that cannot be made does not always fail rte_dev_probe(): the port must be there, too.
  const int probed = rte_dev_probe(config.device.c_str());
  const std::string name = driver_of(config.device);
  if (probed != 0 || rte_eth_dev_get_port_by_name(name.c_str(), &id_) != 0) {
    throw SetupError("DPDK has no device '" + config.device + "'" +
                     (config.kind == PortConfig::Kind::kPci ? "; is it bound to vfio-pci (dpdk-devbind.py --status)?"
                                                            : "; see its messages above"));
  }
  made_ = true;
}

void Port::start(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools) {
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(id_, &info) != 0) throw SetupError("the device does not answer");
  queues_ = std::min({node.lanes, unsigned{info.max_rx_queues}, unsigned{info.max_tx_queues}});
  if (queues_ == 0) throw SetupError("the device has no queues");
  if (queues_ < node.lanes && node.threads > 1) {
    throw SetupError("the device has " + std::to_string(queues_) + " queue pairs for " + std::to_string(node.lanes) +
                     " lanes: set workers.threads to 1, or workers.lanes to " + std::to_string(queues_));
  }
  rte_eth_conf conf{};
  // memif refuses to be told, and takes any frame of its bsize.
  const bool jumbo = node.mtu > RTE_ETHER_MTU && config.kind == PortConfig::Kind::kPci;
  if (jumbo) conf.rxmode.mtu = static_cast<uint32_t>(node.mtu);
  const auto count = static_cast<uint16_t>(queues_);
  if (rte_eth_dev_configure(id_, count, count, &conf) != 0) throw SetupError("the device cannot be configured");
  uint16_t rx = kDescriptors;
  uint16_t tx = kDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(id_, &rx, &tx);
  for (uint16_t queue = 0; queue < count; ++queue) {
    if (rte_eth_rx_queue_setup(id_, queue, rx, kAnySocket, nullptr, pools[queue]) != 0 ||
        rte_eth_tx_queue_setup(id_, queue, tx, kAnySocket, nullptr) != 0) {
      throw SetupError("queue " + std::to_string(queue) + " cannot be set up");
    }
  }
  if (config.mac) {
    rte_ether_addr address{};
    std::ranges::copy(*config.mac, address.addr_bytes);
    // Some virtual devices do not take one; what counts is which frames we answer to.
    (void)rte_eth_dev_default_mac_addr_set(id_, &address);
    mac_ = *config.mac;
  }
  (void)rte_eth_promiscuous_enable(id_);
  if (!try_start() && !needs_goodbye_) throw SetupError("the device does not start");
  if (!config.mac) {
    rte_ether_addr address{};
    if (rte_eth_macaddr_get(id_, &address) != 0) throw SetupError("the device has no MAC address: set `mac`");
    std::ranges::copy(address.addr_bytes, mac_.begin());
  }
}

bool Port::try_start() noexcept {
  if (rte_eth_dev_start(id_) != 0) return false;
  started_.store(true, std::memory_order_release);
  return true;
}

void Port::tend() noexcept {
  if (!started()) {
    // Workers have not touched its queues since the last look.
    rte_eth_dev_stop(id_);
    try_start();
    return;
  }
  if (!reconnects_) return;
  down_ = link_up() ? 0 : down_ + 1;
  if (down_ < kPatience) return;
  down_ = 0;
  started_.store(false, std::memory_order_release);
}

bool Port::link_up() const noexcept {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

}  // namespace gradlane
