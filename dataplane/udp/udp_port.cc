// udp_port.cc - making a port of sockets (control thread; bursts: worker threads)
#include "dataplane/udp/udp_port.h"

#include <fmt/format.h>
#include <net/if.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "config/addresses.h"
#include "config/values.h"
#include "config/words.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/udp/socket_sizes.h"

namespace gradlane {
namespace {

constexpr size_t kMinWaiting = 16;

// Returns the bytes of kernel memory for a packet that arrives alone: 256 for its description, and a power of two for
// the packet and 320 bytes around it. Packets longer than frames come on loopback, where superpackets fill whole pages.
size_t memory_for(size_t mtu) noexcept { return mtu <= kMaxFrameMtu ? std::bit_ceil(mtu + 320) + 256 : mtu + 832; }

void check_mtu(const IpAddress& ip, size_t mtu) {
  const std::string interface = owner_of(ip);
  const size_t has = interface.empty() ? mtu : mtu_of(interface);
  if (has < mtu) {
    throw SetupError(
        fmt::format("mtu is {}, but interface {} with {} has {}: set mtu: {} on all nodes, or ip link set "
                    "{} mtu {}",
                    mtu, interface, ip_text(ip), has, has, interface, mtu));
  }
}

}  // namespace

UdpPort::UdpPort(const PortConfig& config, const NodeConfig& node, rte_mempool* pool)
    : Port(config, &node), mtu_(node.mtu), segments_(most_segments(node)), address_(address_of(node.nodes[node.rank])) {
  const unsigned ranks = ranks_per_node(node);
  const uint32_t ip = node.nodes[node.rank].ip;
  mac_ = mac_of(ip);
  UdpQueue::Setup setup;
  setup.local = {.mac = mac_, .ip = ip, .udp_port = node.udp_port, .udp_ports = static_cast<uint16_t>(lanes_ * ranks)};
  setup.nodes = NodeTable(node);
  setup.any_address = config.device == kAnyWord;
  setup.payload = node.mtu - ip_udp_bytes(node);
  if (segments_ > 1) setup.segments = {.part = setup.payload - kSegmentHeader, .count = segments_};
  setup.receive_bytes = kSocketReceiveBytes;
  try {
    check_mtu(address_of(node.nodes[node.rank]), node.mtu);
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      std::vector<uint16_t> ports;
      for (unsigned local = 0; local < ranks; ++local) {
        ports.push_back(static_cast<uint16_t>(node.udp_port + lane * ranks + local));
      }
      queue_.push_back(std::make_unique<UdpQueue>(setup, ports, pool));
    }
  } catch (const SetupError& error) {
    fail(error);
  }
  if (const size_t granted = queue_.front()->receive_bytes(); granted < kSocketReceiveBytes) {
    spdlog::warn("port {}: socket buffers have {} instead of {}: sysctl -w net.core.rmem_max={}", name_,
                 size_text(granted), size_text(kSocketReceiveBytes), kSocketReceiveBytes);
  }
  if (!setup.any_address) interface_ = if_nametoindex(owner_of(address_).c_str());
  steering_.apply(0, queues_);
  maintain();
  started_.store(true, std::memory_order_release);
}

UdpPort::~UdpPort() = default;

// The kernel counts the memory that holds the packets, not only the bytes of the packets.
size_t UdpPort::most_waiting() const noexcept {
  const size_t room = 2 * queue_.front()->receive_bytes() / (segments_ * memory_for(mtu_));
  return std::bit_floor(std::max(room, kMinWaiting));
}

// Logs each kind of problem only one time, because there may be thousands of packets with it.
void UdpPort::maintain() {
  bool up = interface_ == 0 || interface_running(interface_);
  if (!up) {
    // Another interface may have the address now.
    const unsigned other = if_nametoindex(owner_of(address_).c_str());
    if (other != 0) interface_ = other;
    up = other != 0 && interface_running(other);
  }
  link_up_.store(up, std::memory_order_relaxed);
  for (size_t i = 0; i < logged_.size(); ++i) {
    const auto trouble = static_cast<UdpQueue::Problem>(i);
    if (logged_[i] || std::ranges::all_of(queue_, [&](const auto& it) { return it->times(trouble) == 0; })) continue;
    logged_[i] = true;
    spdlog::log(trouble == UdpQueue::Problem::kTooLong ? spdlog::level::err : spdlog::level::warn, "port {}: {}", name_,
                problem_text(trouble));
  }
}

std::string UdpPort::problem_text(UdpQueue::Problem trouble) const {
  using Problem = UdpQueue::Problem;
  switch (trouble) {
    case Problem::kSingly:
      return "the kernel cannot send many packets in one call (UDP_SEGMENT): each packet needs its own call";
    case Problem::kRefused:
      return fmt::format("the kernel refuses to send packets, and they are lost: {}", refusal_text());
    case Problem::kTooLong:
      return fmt::format(
          "packets of mtu {} are too long for the interface that sends them: set a smaller mtu on all nodes", mtu_);
    case Problem::kUnfit:
      return fmt::format(
          "received packets longer than mtu {}, empty, or in wrong segments were dropped: set the same mtu on all "
          "nodes",
          mtu_);
    case Problem::kNoBuffer:
      return "received packets were dropped, because no buffer was free";
    case Problem::kCount:
      break;
  }
  return "";
}

std::string UdpPort::refusal_text() const {
  const auto it = std::ranges::find_if(queue_, [](const auto& queue) { return queue->refusal() != 0; });
  const int error = it == queue_.end() ? 0 : (*it)->refusal();
  if (error == EPERM || error == EACCES) return "a firewall of this machine forbids it";
  const char* const advice = error == ENETUNREACH || error == EHOSTUNREACH ? ": `ip route get` a neighbour's address"
                             : error == EINVAL || error == EADDRNOTAVAIL
                                 ? ": check that this machine still has its address"
                                 : "";
  return std::string(std::strerror(error)) + advice;
}

uint16_t UdpPort::receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept {
  return queue_[queue]->receive(burst, count);
}

uint16_t UdpPort::receive_datagrams(uint16_t queue, rte_mbuf** burst, uint16_t count, DatagramPath& path) noexcept {
  return queue_[queue]->receive_datagrams(burst, count, path);
}

uint16_t UdpPort::send_datagrams(uint16_t queue, rte_mbuf** burst, DatagramPath* paths, uint16_t count) noexcept {
  return queue_[queue]->send_datagrams(burst, paths, count);
}

}  // namespace gradlane
