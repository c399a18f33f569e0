// sockets.cc - tests of the kernel's sockets (main thread only)
#include "tools/check/sockets.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/parse.h"
#include "config/addresses.h"
#include "config/values.h"
#include "config/words.h"
#include "dataplane/kernel/ethtool.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/udp/socket_sizes.h"
#include "dataplane/udp/superpacket_socket.h"
#include "tools/check/host.h"

namespace gradlane {
namespace {

constexpr size_t kTried = 4;  // packets sent in one call
constexpr size_t kTriedBytes = 1000;
constexpr int kArrivalTime = 500;  // ms until packets from a socket to another one of this machine must have come

uint16_t port_of(const SuperpacketSocket& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  // The port has the same offset in sockaddr_in and sockaddr_in6.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void check_interface_of(const std::string& ip, const std::string& name, size_t mtu, const std::string& what,
                        CheckReport& report) {
  if (name.empty()) return report.ok(fmt::format("{}: {} belongs to this machine", what, ip));
  const size_t has = mtu_of(name);
  if (has < mtu) {
    return report.fail(what, fmt::format("the MTU of {} is {}, but the configuration has {}", name, has, mtu),
                       fmt::format("ip link set {} mtu {}, or mtu: {} on all nodes", name, mtu, has));
  }
  const uint64_t speed = parse_decimal(first_line(fmt::format("/sys/class/net/{}/speed", name))).value_or(0);
  report.ok(fmt::format("{}: on {}, MTU {}{}", what, name, has, speed != 0 ? fmt::format(", {} Mb/s", speed) : ""));
}

// Reports who cuts superpackets into packets, and who joins packets. If the device does, that takes no CPU time.
// Otherwise the kernel does, directly before sending and after receiving.
void check_offloads(const std::string& name, CheckReport& report) {
  const std::set<std::string> features = name.empty() ? std::set<std::string>{} : active_features(name);
  if (features.empty()) return;
  const bool cuts = features.contains("tx-udp-segmentation");
  report.ok(fmt::format("superpackets on {}: cut into packets by the {}", name, cuts ? "device" : "kernel"));
  // A virtual interface delivers a superpacket in one piece, so its packets need not be joined.
  std::error_code none;
  const bool virtual_one = !std::filesystem::exists(fmt::format("/sys/class/net/{}/device", name), none);
  if (virtual_one || features.contains("rx-gro")) return;
  report.note(
      "superpackets on " + name,
      fmt::format("packets that arrive are not joined, so each one takes time in the kernel: ethtool -K {} gro on",
                  name));
}

void check_room(const char* what, size_t granted, size_t wanted, const char* limit, CheckReport& report) {
  if (granted >= wanted) return report.ok(fmt::format("{}: {}", what, size_text(wanted)));
  report.note(what, fmt::format("{} instead of {}: windows are smaller, and bursts get lost sooner; as root: sysctl -w "
                                "net.core.{}={}",
                                size_text(granted), size_text(wanted), limit, wanted));
}

void check_rooms(const SuperpacketSocket& socket, CheckReport& report) {
  int send = 0;
  socklen_t bytes = sizeof(send);
  (void)getsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &send, &bytes);
  check_room("receive buffer of sockets", socket.receive_bytes(), kSocketReceiveBytes, "rmem_max", report);
  // The kernel returns twice the size that was asked for.
  check_room("send buffer of sockets", static_cast<size_t>(send) / 2, kSocketSendBytes, "wmem_max", report);
}

// Number of packets that arrived, and the most that one call returned.
struct Came {
  size_t packets = 0;
  size_t at_once = 0;
};
Came receive_all(SuperpacketSocket& socket) {
  Came came;
  std::vector<uint8_t> room(kTried * kTriedBytes);
  pollfd event{.fd = socket.fd(), .events = POLLIN, .revents = 0};
  while (came.packets < kTried && poll(&event, 1, kArrivalTime) == 1) {
    iovec all{room.data(), room.size()};
    const SuperpacketSocket::Arrival arrival = socket.receive(&all, 1);
    if (arrival.bytes == 0) break;
    const size_t packets = (arrival.bytes + arrival.each - 1) / arrival.each;
    came.packets += packets;
    came.at_once = std::max(came.at_once, packets);
  }
  return came;
}

void check_superpackets(SuperpacketSocket& from, SuperpacketSocket& to, const Endpoint& there, CheckReport& report) {
  using Sent = SuperpacketSocket::Sent;
  std::vector<uint8_t> bytes(kTriedBytes);
  std::array<iovec, kTried> packets;
  packets.fill({bytes.data(), bytes.size()});
  const Sent sent = from.send(there, 0, packets.data(), kTried, kTriedBytes);
  if (sent == Sent::kSingly) {
    report.note("UDP_SEGMENT",
                "the kernel takes only one packet per call, which costs time: more need Linux 4.18, and no filter of "
                "system calls that refuses them");
    for (iovec& each : packets) (void)from.send(there, 0, &each, 1, 0);
  } else if (sent == Sent::kYes) {
    report.ok("UDP_SEGMENT: many packets are sent in one call");
  }
  const Came came = receive_all(to);
  if (came.packets == 0) {
    return report.note("UDP_GRO",
                       "not tried: packets to this node's own address do not arrive; check that interface lo is up and "
                       "that no firewall drops them");
  }
  if (sent != Sent::kYes) return;
  if (came.at_once > 1) return report.ok("UDP_GRO: many packets are received in one call");
  report.note("UDP_GRO", "only one packet is received per call, which costs time: more need Linux 5.0");
}

}  // namespace

const PortConfig* port_of_sockets(const NodeConfig& config) {
  const auto it = std::ranges::find(config.ports, PortConfig::Kind::kUdp, &PortConfig::kind);
  return it == config.ports.end() ? nullptr : &*it;
}

void check_sockets(const NodeConfig& config, CheckReport& report) {
  const PortConfig* const port = port_of_sockets(config);
  if (port == nullptr) return;
  const IpAddress ip = address_of(config.nodes[config.rank]);
  const bool any = port->device == kAnyWord;
  const std::string what = fmt::format("address {} of port {}", any ? "any" : ip_text(ip), port->name);
  std::optional<SuperpacketSocket> one;
  std::optional<SuperpacketSocket> other;
  try {
    one.emplace(Endpoint{ip, 0}, kSocketReceiveBytes, any);
    other.emplace(Endpoint{ip, 0}, kSocketReceiveBytes, any);
  } catch (const SetupError& error) {
    return report.fail(what, error.what(), "`ip addr` lists the addresses of this machine");
  }
  const std::string interface = owner_of(ip);
  if (!any || !interface.empty()) check_interface_of(ip_text(ip), interface, config.mtu, what, report);
  check_offloads(interface, report);
  check_rooms(*one, report);
  const IpAddress here = any ? parse_address(ipv4_of(ip) ? "127.0.0.1" : "::1").value_or(ip) : ip;
  check_superpackets(*one, *other, {here, port_of(*other)}, report);
}

}  // namespace gradlane
