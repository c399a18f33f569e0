// addresses.cc - nodes' addresses (IPv4, IPv6) as text, and the IPv4 addresses that stand for them in frames (set-up
// and control threads)
#include "config/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>

#include "config/devices.h"
#include "config/values.h"

namespace gradlane {
namespace {

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kMoreOfIpv6 = 20;

}  // namespace

IpAddress ip_address(uint32_t ip) noexcept {
  IpAddress address{};
  std::ranges::copy(kIpv4Prefix, address.begin());
  for (size_t i = 0; i < 4; ++i) address[12 + i] = static_cast<uint8_t>(ip >> (24 - 8 * i));
  return address;
}

std::optional<uint32_t> ipv4_of(const IpAddress& address) noexcept {
  if (!std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), address.begin())) return std::nullopt;
  return uint32_t{address[12]} << 24 | uint32_t{address[13]} << 16 | uint32_t{address[14]} << 8 | address[15];
}

std::optional<IpAddress> parse_address(std::string_view text) {
  if (const auto ip = parse_ip(text)) return ip_address(*ip);
  IpAddress address{};
  if (inet_pton(AF_INET6, std::string(text).c_str(), address.data()) != 1) return std::nullopt;
  return address;
}

std::optional<IpPort> parse_ip_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view ip = text.substr(0, colon);
  const bool bracketed = ip.starts_with('[') && ip.ends_with(']');
  if (bracketed) ip = ip.substr(1, ip.size() - 2);
  const auto address = parse_address(ip);
  const auto port = parse_decimal(text.substr(colon + 1), 1, 65535);
  if (!address || !port || bracketed != (ip.find(':') != std::string_view::npos)) return std::nullopt;
  return IpPort{*address, static_cast<uint16_t>(*port)};
}

bool is_loopback(const IpAddress& address) noexcept {
  if (const auto ip = ipv4_of(address)) return *ip >> 24 == 127;
  IpAddress own{};
  own.back() = 1;
  return address == own;
}

bool is_of_one_link(const IpAddress& address) noexcept { return address[0] == 0xfe && (address[1] & 0xc0) == 0x80; }

bool is_host(const IpAddress& address) noexcept {
  // Sources: RFC 1122 and RFC 1112; for IPv6 RFC 4291.
  if (const auto ip = ipv4_of(address)) return *ip >> 24 != 0 && *ip >> 24 < 224;
  return address[0] != 0xff && !is_of_one_link(address) && address != IpAddress{};
}

IpAddress address_of(const NodeAddress& node) noexcept { return node.real.value_or(ip_address(node.ip)); }

uint16_t udp_port_of(const NodeConfig& config, const NodeAddress& node) noexcept {
  return node.udp_port.value_or(config.udp_port);
}

std::string ip_text(const IpAddress& address) {
  if (const auto ip = ipv4_of(address)) return ip_text(*ip);
  char text[INET6_ADDRSTRLEN]{};
  return inet_ntop(AF_INET6, address.data(), text, sizeof(text)) == nullptr ? "" : text;
}

std::string address_text(const NodeAddress& node) {
  const IpAddress address = address_of(node);
  return node.udp_port ? address_text(IpPort{address, *node.udp_port}) : ip_text(address);
}

std::string address_text(const IpPort& address) {
  const std::string ip = ip_text(address.ip);
  return ipv4_of(address.ip) ? fmt::format("{}:{}", ip, address.port) : fmt::format("[{}]:{}", ip, address.port);
}

std::string address_text(const NodeConfig& config, uint32_t ip) {
  const auto node = std::ranges::find(config.nodes, ip, &NodeAddress::ip);
  if (node != config.nodes.end()) return address_text(*node);
  return ip == kStrangerIp ? "an address or UDP port that no node has" : ip_text(ip);
}

bool needs_sockets(const NodeConfig& config) noexcept {
  return std::ranges::any_of(config.nodes, [&config](const NodeAddress& node) {
    return node.real.has_value() || udp_port_of(config, node) != config.udp_port;
  });
}

size_t ip_udp_bytes(const NodeConfig& config) noexcept {
  const bool of_ipv4 =
      std::ranges::all_of(config.nodes, [](const NodeAddress& node) { return ipv4_of(address_of(node)).has_value(); });
  return kIpUdpBytes + (of_ipv4 ? 0 : kMoreOfIpv6);
}

bool all_on_loopback(const NodeConfig& config) noexcept {
  return std::ranges::all_of(config.nodes, [](const NodeAddress& node) { return is_loopback(address_of(node)); });
}

bool uses_network(const NodeConfig& config) noexcept {
  return !all_on_loopback(config) && std::ranges::any_of(config.ports, [](const PortConfig& port) {
    return port.kind != PortConfig::Kind::kRing && !is_memif(port) && !is_vhost(port) && !is_virtio(port);
  });
}

size_t most_segments(const NodeConfig& config) noexcept {
  if (!of_sockets(config) || !config.segments || config.security != Security::kNone) return 1;
  return std::max<size_t>(kMaxMtu / (config.mtu - ip_udp_bytes(config) - kSegmentHeader), 1);
}

}  // namespace gradlane
