// loopback.cc - set-up and end of a loopback, in every mode (its one thread)
#include "dataplane/loopback/loopback.h"

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "config/devargs.h"
#include "config/devices.h"
#include "dataplane/device/capabilities.h"
#include "dataplane/device/eal.h"
#include "dataplane/device/ethdev_port.h"
#include "dataplane/device/no_device.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/loopback/ports.h"

namespace gradlane {
namespace {

constexpr uint16_t kLoopbackDescriptors = 1024;
constexpr unsigned kLinkLooks = 50;
constexpr useconds_t kLookAtLinksEvery = 100'000;
constexpr size_t kBuffers = 8191;  // buffers for the queues of both ports, and for two exchanges

// Throws SetupError if `result` is an error: `what` did not work on this device.
void check(int result, const std::string& device, const char* what) {
  if (result >= 0) return;
  throw SetupError("--device '" + device + "': cannot " + what + ": " + rte_strerror(-result));
}

PortConfig port_of(const std::string& device) {
  PortConfig port;
  port.kind = is_pci_address(device_name(device)) ? PortConfig::Kind::kPci : PortConfig::Kind::kDevice;
  port.device = device;
  return port;
}

std::vector<std::string> cards_of(const LoopbackConfig& config) {
  std::vector<std::string> cards;
  for (const std::string& device : config.devices) {
    if (port_of(device).kind == PortConfig::Kind::kPci) cards.push_back(device);
  }
  return cards;
}

size_t ip_bytes(const LoopbackConfig& config) { return config.frame_bytes - kEthernetBytes; }

// Returns the length of the longest IP packet that buffers have space for.
size_t longest(const LoopbackConfig& config, bool (&powers)(const PortConfig&)) {
  std::vector<PortConfig> cards;
  for (const std::string& card : cards_of(config)) cards.push_back(port_of(card));
  if (cards.empty()) return ip_bytes(config);
  // Cards write any packet that arrives into a buffer, so buffers hold at least packets of Ethernet's usual MTU.
  return longest_packet(cards, std::max(ip_bytes(config), size_t{RTE_ETHER_MTU}), powers);
}

void wait_for_link(uint16_t port) noexcept {
  rte_eth_link link{};
  for (unsigned tries = 0; tries < kLinkLooks && link.link_status != RTE_ETH_LINK_UP; ++tries) {
    if (tries != 0) usleep(kLookAtLinksEvery);
    if (rte_eth_link_get_nowait(port, &link) != 0) return;
  }
}

}  // namespace

// ---- Names

const char* loopback_drop_name(size_t drop) noexcept {
  if (drop == kDropBadPayload) return "bad_payload";
  if (drop == kDropTransmitFull) return "tx_full";
  return counter_name(static_cast<FrameVerdict>(drop));
}

bool loopback_drops(size_t drop) noexcept {
  return drop != static_cast<size_t>(FrameVerdict::kGradlane) && drop != static_cast<size_t>(FrameVerdict::kHost);
}

// ---- Ports

LoopbackPorts::LoopbackPorts(const LoopbackConfig& config) {
  const size_t buffers = kBuffers + kLoopbackPorts * config.packets;
  EalOptions options;
  // The devices' rings and descriptors need memory in addition to the buffers.
  options.memory_bytes = PacketPool::bytes_needed(buffers, longest(config, EthdevPort::may_need_power_of_two_buffers)) +
                         (size_t{32} << 20);
  const std::vector<std::string> cards = cards_of(config);
  options.pci = cards;
  start_eal(options);
  try {
    pool_ = std::make_unique<PacketPool>("loopback", buffers, longest(config, EthdevPort::needs_power_of_two_buffers));
    for (size_t i = 0; i < kLoopbackPorts; ++i) open(i, config.devices[i], ip_bytes(config));
    // Packets that are sent before the links are up get lost.
    for (size_t i = 0; i < kLoopbackPorts && !cards.empty(); ++i) wait_for_link(ids_[i]);
  } catch (...) {
    close();
    throw;
  }
}

LoopbackPorts::~LoopbackPorts() { close(); }

void LoopbackPorts::close() noexcept {
  for (size_t i = 0; i < opened_; ++i) {
    rte_eth_dev_stop(ids_[i]);
    rte_eth_dev_close(ids_[i]);
  }
  pool_.reset();
  stop_eal();
}

void LoopbackPorts::make(const PortConfig& config, uint16_t& port) {
  const std::string& device = config.device;
  if (config.kind == PortConfig::Kind::kPci) {
    // EAL has probed the card at its start, and rte_dev_probe() fails for a device that exists already.
    const std::string address = device_key(config);
    const auto there = [&] { return rte_eth_dev_get_port_by_name(address.c_str(), &port) == 0; };
    if (there()) return;
    const int result = rte_dev_probe(device.c_str());
    if (result == 0 && there()) return;
    throw SetupError("--device '" + device + "': " + no_device(config, result).what());
  }
  const std::string name(device_name(device));
  const size_t comma = std::min(device.find(','), device.size());
  const std::string arguments = comma < device.size() ? device.substr(comma + 1) : "";
  check(rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str()), device, "make it a virtual device of DPDK");
  if (rte_eth_dev_get_port_by_name(name.c_str(), &port) != 0) {
    throw SetupError("--device '" + device + "': it is not a network device");
  }
}

void LoopbackPorts::open(size_t i, const std::string& device, size_t mtu) {
  const PortConfig config = port_of(device);
  uint16_t& port = ids_[i];
  make(config, port);
  opened_ = i + 1;
  rte_eth_conf conf{};
  rte_eth_dev_info info{};
  if (config.kind == PortConfig::Kind::kPci && rte_eth_dev_info_get(port, &info) == 0) {
    const size_t room = rte_pktmbuf_data_room_size(pool_->mempool()) - size_t{RTE_PKTMBUF_HEADROOM};
    ask_for_mtu(info, config, traits_of(config), mtu, room, conf);
  }
  check(rte_eth_dev_configure(port, 1, 1, &conf), device, "configure it with one queue");
  uint16_t receive = kLoopbackDescriptors, transmit = kLoopbackDescriptors;
  check(rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit), device, "size its queues");
  check(rte_eth_rx_queue_setup(port, 0, receive, kAnySocket, nullptr, pool_->mempool()), device, "receive from it");
  check(rte_eth_tx_queue_setup(port, 0, transmit, kAnySocket, nullptr), device, "send to it");
  check(rte_eth_dev_start(port), device, "start it");
  // The frames are for other MAC addresses than the devices'. Some devices take all frames anyway, and do not support
  // this call.
  (void)rte_eth_promiscuous_enable(port);
}

Flow loopback_flow(size_t from, size_t to) noexcept {
  const LocalAddress& source = kLoopbackNodes[from];
  const LocalAddress& destination = kLoopbackNodes[to];
  return {source.mac, destination.mac, source.ip, destination.ip, source.udp_port, destination.udp_port};
}

// ---- Running

void loopback_yield() noexcept { sched_yield(); }

void LoopbackEngine::drain(LoopbackPorts& ports) noexcept {
  std::array<rte_mbuf*, kMaxLoopbackBurst> burst;
  for (size_t i = 0; i < kLoopbackPorts; ++i) {
    // The number of tries is limited, as others may keep sending to the port.
    for (unsigned tries = 0; tries < 1000; ++tries) {
      const uint16_t count = rte_eth_rx_burst(ports[i], 0, burst.data(), kMaxLoopbackBurst);
      if (count == 0) break;
      figures.left += count;
      rte_pktmbuf_free_bulk(burst.data(), count);
    }
  }
}

Loopback::Loopback(const LoopbackConfig& config)
    : engine_(config.mode == LoopbackMode::kRing ? make_loopback_ring(config) : make_loopback_forward(config)) {}
Loopback::~Loopback() = default;

void Loopback::run(Nanos duration) {
  const double cycles = static_cast<double>(duration) * static_cast<double>(rte_get_tsc_hz()) / 1e9;
  engine_->run(rte_rdtsc() + static_cast<uint64_t>(cycles));
}

void Loopback::stop() { engine_->stop(); }

const LoopbackFigures& Loopback::figures() const noexcept { return engine_->figures; }

}  // namespace gradlane
