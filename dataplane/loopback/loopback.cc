// loopback.cc - set-up and end of a loopback, whatever its mode (its one thread)
#include "dataplane/loopback/loopback.h"

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <sched.h>

#include <algorithm>

#include "base/error.h"
#include "dataplane/device/eal.h"
#include "dataplane/loopback/ports.h"

namespace gradlane {
namespace {

constexpr uint16_t kDescriptors = 1024;
constexpr size_t kBuffers = 8191;  // for the queues of both ports, and two exchanges

// `what` did not work on this device.
void check(int result, const std::string& device, const char* what) {
  if (result >= 0) return;
  throw SetupError("--device '" + device + "': cannot " + what + ": " + rte_strerror(-result));
}

size_t ip_bytes(const LoopbackConfig& config) { return config.frame_bytes - kEthernetBytes; }

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
  // Rings of the devices and their descriptors come on top of the buffers.
  options.memory_bytes = PacketPool::bytes_needed(buffers, ip_bytes(config)) + (size_t{32} << 20);
  start_eal(options);
  try {
    pool_ = std::make_unique<PacketPool>("loopback", buffers, ip_bytes(config));
    for (size_t i = 0; i < kLoopbackPorts; ++i) open(i, config.devices[i]);
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

void LoopbackPorts::open(size_t i, const std::string& device) {
  const size_t comma = std::min(device.find(','), device.size());
  const std::string name = device.substr(0, comma);
  const std::string arguments = comma < device.size() ? device.substr(comma + 1) : "";
  check(rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str()), device, "make it a virtual device of DPDK");
  uint16_t& port = ids_[i];
  if (rte_eth_dev_get_port_by_name(name.c_str(), &port) != 0) {
    throw SetupError("--device '" + device + "': is no network device");
  }
  opened_ = i + 1;
  const rte_eth_conf conf{};
  check(rte_eth_dev_configure(port, 1, 1, &conf), device, "configure it with one queue");
  uint16_t receive = kDescriptors, transmit = kDescriptors;
  check(rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit), device, "size its queues");
  check(rte_eth_rx_queue_setup(port, 0, receive, kAnySocket, nullptr, pool_->mempool()), device, "receive from it");
  check(rte_eth_tx_queue_setup(port, 0, transmit, kAnySocket, nullptr), device, "send to it");
  check(rte_eth_dev_start(port), device, "start it");
  // Frames have addresses of their own. Some devices take everything in any case, and do not know this call.
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
    // Bounded: others may go on sending to the port.
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
