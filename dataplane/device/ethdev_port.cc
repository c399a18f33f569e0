// ethdev_port.cc - making, starting and tending DPDK devices (control thread, and threads of devices that block)
#include "dataplane/device/ethdev_port.h"

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "config/devargs.h"
#include "config/devices.h"
#include "dataplane/device/capabilities.h"
#include "dataplane/device/drivers.h"
#include "dataplane/device/no_device.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/device/packet_socket.h"
#include "dataplane/frame/frame.h"
#include "dataplane/kernel/host_claim.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/kernel/pci_device.h"
#include "dataplane/kernel/xdp.h"

namespace gradlane {
namespace {

static_assert(kMaxProcessPorts <= RTE_MAX_ETHPORTS);
constexpr uint16_t kDescriptors = 512;
constexpr std::string_view kOldIntel = "net_e1000_em";  // driver of e1000 and e1000e
constexpr unsigned kPatience = 10;  // number of checks of a link, 100 ms apart, before its memif client tries again
constexpr useconds_t kLookEvery = 100'000;  // us between two checks of the link of a device that blocks

}  // namespace

EthdevPort::EthdevPort(const PortConfig& config, const NodeConfig* node, size_t mtu,
                       std::span<rte_mempool* const> pools)
    : Port(config, node), all_frames_(node == nullptr), mtu_(mtu), pools_(pools.begin(), pools.end()) {
  if (config.mac) mac_ = *config.mac;
  if (!config.mac && traits_.needs_mac) mac_ = mac_of(node == nullptr ? 0 : node->nodes[node->rank].ip);
}

EthdevPort::EthdevPort(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools,
                       RingLinks& links, const std::string& unique)
    : EthdevPort(config, &node, node.mtu, pools) {
  make([&] {
    if (config_.kind == PortConfig::Kind::kRing) {
      make_ring(links, unique);
    } else {
      probe();
    }
  });
}

EthdevPort::EthdevPort(const PortConfig& config, size_t mtu, rte_mempool* pool)
    : EthdevPort(config, nullptr, mtu, {&pool, 1}) {
  make([this] {
    const WithoutFanout fragments_stay;
    probe();
  });
}

template <class Make>
void EthdevPort::make(Make make_device) {
  try {
    check_frames(config_.device, mtu_ + kEthernetBytes);
    // A socket file that an earlier process left would keep a server from starting.
    remove_socket(traits_.socket);
    check_socket(traits_.socket);
    if (traits_.blocks) {
      steering_.apply(0, queues_);
      return;
    }
    const std::string warning = check_kernel_interface(config_, mtu_);
    if (!warning.empty()) spdlog::warn("port {}: {}", name_, warning);
    if (is_af_packet(config_) || is_af_xdp(config_)) {
      claim_on_host("interface " + interface_name(config_), "stop it, or set another interface for this daemon");
    }
    if (is_af_xdp(config_)) prepare_xdp();
    make_device();
    start();
    removal_.emplace(id_);
    if (is_af_xdp(config_)) program_ = keep_xdp_program(interface_);
    (void)take_xdp_messages();
  } catch (const SetupError& error) {
    removal_.reset();
    if (made_) rte_eth_dev_close(id_);
    made_ = false;
    const std::string messages = take_xdp_messages();
    if (!messages.empty()) spdlog::warn("port {}: {}", name_, messages);
    fail(error);
  }
}

bool EthdevPort::program_stays() const noexcept { return is_af_xdp(config_) && !program_; }

EthdevPort::~EthdevPort() {
  remove_socket(traits_.socket);
  if (!made_ || traits_.never_closed) return;
  steering_.remove();
  // Promiscuous mode of the interface would outlive the device. Disabling it needs the same rights as enabling it.
  if (traits_.kernel && promiscuous_) (void)rte_eth_promiscuous_disable(id_);
  removal_.reset();
  if (started()) rte_eth_dev_stop(id_);
  rte_eth_dev_close(id_);
}

// ---- Making

void EthdevPort::make_ring(RingLinks& links, const std::string& unique) {
  const RingLinks::End end = links.attach(config_.device, lanes_);
  const int id = rte_eth_from_rings(("ring_" + unique).c_str(), const_cast<rte_ring**>(end.rx.data()), lanes_,
                                    const_cast<rte_ring**>(end.tx.data()), lanes_, kAnySocket);
  if (id < 0) throw SetupError("cannot make an in-process ring device");
  id_ = static_cast<uint16_t>(id);
  made_ = true;
}

void EthdevPort::probe() {
  // EAL has probed the cards at its start, and rte_dev_probe() fails for a device that exists already. It may succeed
  // for a virtual device that could not be made, so the port must exist as well.
  const bool there = config_.kind == PortConfig::Kind::kPci && find(config_, id_);
  if (!there) {
    const int result = rte_dev_probe(config_.device.c_str());
    if (result != 0 || !find(config_, id_)) throw no_device(config_, result);
  }
  made_ = true;
}

bool EthdevPort::find(const PortConfig& config, uint16_t& id) noexcept {
  if (rte_eth_dev_get_port_by_name(std::string(device_name(config.device)).c_str(), &id) == 0) return true;
  // The configuration may have the short form of a card's address.
  return config.kind == PortConfig::Kind::kPci && rte_eth_dev_get_port_by_name(device_key(config).c_str(), &id) == 0;
}

int EthdevPort::numa_node_of(const PortConfig& config) noexcept {
  uint16_t id = 0;
  return config.kind == PortConfig::Kind::kPci && find(config, id) ? rte_eth_dev_socket_id(id) : -1;
}

bool EthdevPort::may_need_power_of_two_buffers(const PortConfig& config) {
  return config.kind == PortConfig::Kind::kPci && may_be_e1000(look_at_card(device_key(config)).ids);
}

bool EthdevPort::needs_power_of_two_buffers(const PortConfig& config) {
  uint16_t id = 0;
  rte_eth_dev_info info{};
  if (config.kind != PortConfig::Kind::kPci || !find(config, id) || rte_eth_dev_info_get(id, &info) != 0) return false;
  return std::string_view(info.driver_name) == kOldIntel;
}

void EthdevPort::start() {
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(id_, &info) != 0) throw SetupError("DPDK cannot read the properties of the device");
  driver_ = info.driver_name;
  unsigned queues = std::min({lanes_, unsigned{info.max_rx_queues}, unsigned{info.max_tx_queues}});
  // The driver reports two queues for all its cards. Some cards have one, and never send packets of the second. None
  // distributes received packets to queues.
  if (driver_ == kOldIntel) queues = std::min(queues, 1U);
  if (queues == 0) throw SetupError("the device has no queues");
  if (queues < lanes_ && traits_.blocks) {
    throw SetupError("the device has " + std::to_string(queues) + " queue pairs for " + std::to_string(lanes_) +
                     " lanes: set workers.lanes to " + std::to_string(queues));
  }
  if (!traits_.blocks) queues_ = queues;
  if (config_.kind == PortConfig::Kind::kDevice) interface_ = info.if_index;
  numa_node_ = numa_node_of(config_);
  configure(info);
  const auto count = static_cast<uint16_t>(queues_);
  uint16_t rx = kDescriptors;
  uint16_t tx = kDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(id_, &rx, &tx);
  for (uint16_t queue = 0; queue < count; ++queue) {
    if (rte_eth_rx_queue_setup(id_, queue, rx, kAnySocket, nullptr, pools_[queue]) != 0 ||
        rte_eth_tx_queue_setup(id_, queue, tx, kAnySocket, nullptr) != 0) {
      throw SetupError("queue " + std::to_string(queue) + " cannot be set up");
    }
  }
  const bool own_mac = !config_.mac && !traits_.needs_mac;
  rte_ether_addr address{};
  bool taken = own_mac;
  if (!own_mac) {
    std::ranges::copy(mac_, address.addr_bytes);
    // Some virtual devices do not accept a MAC address. The node then still answers only frames to this address.
    taken = rte_eth_dev_default_mac_addr_set(id_, &address) == 0;
  }
  if (all_frames_) {
    open_to_all();
  } else if (!traits_.kernel || !taken) {
    // Promiscuous mode of a kernel interface would affect all other programs.
    promiscuous_ = rte_eth_promiscuous_enable(id_) == 0;
  }
  if (!try_start() && !traits_.needs_goodbye) throw SetupError("the device does not start");
  if (!traits_.blocks) steering_.apply(id_, queues_);
  if (own_mac) {
    if (rte_eth_macaddr_get(id_, &address) != 0) throw SetupError("the device has no MAC address: set `mac`");
    std::ranges::copy(address.addr_bytes, mac_.begin());
  }
}

void EthdevPort::configure(const rte_eth_dev_info& info) {
  rte_eth_conf conf{};
  const size_t room = rte_pktmbuf_data_room_size(pools_[0]) - size_t{RTE_PKTMBUF_HEADROOM};
  check_room(driver_, room);
  ask_for_mtu(info, config_, traits_, mtu_, room, conf);
  if (!all_frames_) checksum_offload_ = ask_for_checksums(info, traits_, conf);
  if (!traits_.blocks) steering_.prepare(info, queues_, conf);
  if ((*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0) conf.intr_conf.rmv = 1;  // see RemovalWatch
  const auto count = static_cast<uint16_t>(queues_);
  int result = rte_eth_dev_configure(id_, count, count, &conf);
  if (result != 0 && steering_.give_up_rss(conf)) result = rte_eth_dev_configure(id_, count, count, &conf);
  if (result != 0) throw SetupError("the device cannot be configured");
}

void EthdevPort::open_to_all() {
  if (is_af_packet(config_) || is_af_xdp(config_)) {
    if (interface_ != 0) listening_ = make_promiscuous(interface_);
    if (is_af_packet(config_) && interface_ != 0) look_at_socket();
  } else if (!traits_.kernel) {
    // The other kernel devices are taps, which receive all frames that the host sends.
    promiscuous_ = rte_eth_promiscuous_enable(id_) == 0;
  }
  if (!promiscuous_ && config_.kind == PortConfig::Kind::kPci) {
    throw SetupError("cannot switch the card to promiscuous mode, so it would not receive packets for the host");
  }
}

void EthdevPort::look_at_socket() {
  packet_socket_ = find_packet_socket(interface_);
  if (packet_socket_ < 0) return;
  if (!ignore_outgoing(packet_socket_)) {
    spdlog::warn(
        "port {}: this port also receives what the kernel sends on the interface; Linux 4.20 and later exclude it",
        name_);
  }
  if (!reassembles(packet_socket_)) return;
  spdlog::warn("port {}: the kernel reassembles IP fragments before they arrive; packets longer than the MTU are lost",
               name_);
}

bool EthdevPort::try_start() noexcept {
  if (rte_eth_dev_start(id_) != 0) return false;
  started_.store(true, std::memory_order_release);
  return true;
}

// ---- Bursts

uint16_t EthdevPort::receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept {
  return rte_eth_rx_burst(id_, queue, burst, count);
}

uint16_t EthdevPort::send(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept {
  return rte_eth_tx_burst(id_, queue, burst, count);
}

// ---- Tending

void EthdevPort::look_at_link() noexcept {
  rte_eth_link link{};
  bool up = rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
  if (interface_ != 0) up = up && interface_running(interface_);
  link_up_.store(up, std::memory_order_relaxed);
  const bool told = up && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN;
  link_speed_.store(told ? link.link_speed : 0, std::memory_order_relaxed);
}

void EthdevPort::maintain() {
  if (failed_.load(std::memory_order_acquire)) fail(SetupError(failure_));
  if (traits_.blocks && !kept_) begin();
  if (!traits_.blocks) look_at_link();
  look_for_interface();
  look_for_card();
  if (packet_socket_ >= 0) missed_ += take_missed(packet_socket_);
  if (logged_up_ != link_up()) {
    logged_up_ = !logged_up_;
    spdlog::info("port {}: the link is {}", name_, logged_up_ ? "up" : "down");
  }
  if (traits_.blocks) return;
  if (!started()) {
    // Workers have not touched the queues since the last call of maintain().
    rte_eth_dev_stop(id_);
    try_start();
    return;
  }
  if (!traits_.reconnects) return;
  down_ = link_up() ? 0 : down_ + 1;
  if (down_ < kPatience) return;
  down_ = 0;
  started_.store(false, std::memory_order_release);
}

void EthdevPort::look_for_interface() const {
  if (interface_ == 0 || interface_there(interface_)) return;
  throw DeviceLost("port " + name_ + ": interface " + interface_name(config_) +
                   " is gone: it was deleted, created again, or moved to another network namespace");
}

void EthdevPort::look_for_card() const {
  const bool card = config_.kind == PortConfig::Kind::kPci;
  const bool asked_for = removal_ && removal_->asked_for();
  if (!asked_for && (!card || card_there(device_key(config_)))) return;
  throw DeviceLost("port " + name_ + ": " +
                   (card ? "PCI device " + device_key(config_) : "device " + std::string(device_name(config_.device))) +
                   " was removed from the machine, or unbound from its driver");
}

// ---- Devices that block

void EthdevPort::begin() {
  kept_ = true;
  std::thread thread(&EthdevPort::keep, this);
  pthread_setname_np(thread.native_handle(), ("gl-" + name_).substr(0, 15).c_str());
  thread.detach();
}

void EthdevPort::keep() noexcept {
  try {
    // This process may run as another user by now.
    check_socket(traits_.socket);
    probe();
    start();
  } catch (const std::exception& error) {
    failure_ = error.what();
    failed_.store(true, std::memory_order_release);
    return;
  }
  for (; !left_.load(std::memory_order_relaxed); usleep(kLookEvery)) look_at_link();
}

bool EthdevPort::leave() noexcept {
  if (!kept_) return false;
  left_.store(true, std::memory_order_relaxed);
  remove_socket(traits_.socket);
  return true;
}

}  // namespace gradlane
