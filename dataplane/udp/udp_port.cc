// udp_port.cc - making a port of sockets (control thread; bursts: worker threads)
#include "dataplane/udp/udp_port.h"

#include <spdlog/spdlog.h>

#include "base/error.h"
#include "config/values.h"

namespace gradlane {
namespace {

constexpr size_t kReceiveBytes = size_t{4} << 20;

}  // namespace

UdpPort::UdpPort(const PortConfig& config, const NodeConfig& node, rte_mempool* pool) : Port(config, &node) {
  const unsigned ranks = ranks_per_node(node);
  const uint32_t ip = node.nodes[node.rank].ip;
  mac_ = mac_of(ip);
  UdpQueue::Setup setup;
  setup.local = {.mac = mac_, .ip = ip, .udp_port = node.udp_port, .udp_ports = static_cast<uint16_t>(lanes_ * ranks)};
  setup.payload = node.mtu - kIpUdpBytes;
  setup.receive_bytes = kReceiveBytes;
  try {
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      std::vector<uint16_t> ports;
      for (unsigned local = 0; local < ranks; ++local) {
        ports.push_back(static_cast<uint16_t>(node.udp_port + lane * ranks + local));
      }
      queue_.push_back(std::make_unique<UdpQueue>(setup, ports, pool));
    }
  } catch (const SetupError& error) {
    fail(error.what());
  }
  if (const size_t granted = queue_.front()->receive_bytes(); granted < kReceiveBytes) {
    spdlog::warn("port {}: sockets have room for {} of {}: sysctl -w net.core.rmem_max={}", name_, size_text(granted),
                 size_text(kReceiveBytes), kReceiveBytes);
  }
  steering_.apply(0, queues_);
  started_.store(true, std::memory_order_release);
}

UdpPort::~UdpPort() = default;

void UdpPort::tend() {
  link_up_.store(true, std::memory_order_relaxed);
  if (singly_logged_) return;
  for (const auto& it : queue_) singly_logged_ |= it->sends_singly();
  if (singly_logged_) {
    spdlog::warn("port {}: the kernel does not take many packets at once (UDP_SEGMENT): each costs a call", name_);
  }
}

uint16_t UdpPort::receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept {
  return queue_[queue]->receive(burst, count);
}

uint16_t UdpPort::send(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept {
  return queue_[queue]->send(burst, count);
}

}  // namespace gradlane
