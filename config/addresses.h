// addresses.h - addresses of nodes: those of their sockets, and those that frames have in place of them (set-up and
// control threads)
//
// Frames have the headers of IPv4 and one range of UDP ports, whatever a port is made of (dataplane/udp/). Where all
// nodes have IPv4 addresses, and each another one, frames have these. Else (IPv6, several nodes at one address) they
// have made-up ones, the same on all nodes, which never leave a machine: only ports of sockets know what is meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/config.h"

namespace gradlane {

inline constexpr uint32_t kMadeUpIp = 0xf0000001;    // 240.0.0.1 of rank 0, and so on: nobody's (RFC 1112)
inline constexpr uint32_t kStrangerIp = 0xf0fffffe;  // whoever has no other address in frames

[[nodiscard]] IpAddress ip_address(uint32_t ip) noexcept;  // of IPv4
[[nodiscard]] std::optional<uint32_t> ipv4_of(const IpAddress& address) noexcept;

// 10.77.0.1, fd00::1; ::ffff:10.77.0.1 is the former.
[[nodiscard]] std::optional<IpAddress> parse_address(std::string_view text);
// 10.77.0.1:9400, [fd00::1]:9400
[[nodiscard]] std::optional<IpPort> parse_ip_port(std::string_view text);
[[nodiscard]] bool is_loopback(const IpAddress& address) noexcept;
[[nodiscard]] bool is_of_one_link(const IpAddress& address) noexcept;  // fe80::/10, which needs an interface beside it
// Not of a group, "this" network, or one link.
[[nodiscard]] bool is_host(const IpAddress& address) noexcept;

// Where packets for a node go.
[[nodiscard]] IpAddress address_of(const NodeAddress& node) noexcept;
[[nodiscard]] uint16_t udp_port_of(const NodeConfig& config, const NodeAddress& node) noexcept;

// For people: "10.77.0.1", "fd00::1", and "[fd00::1]:19000" where the node has its own UDP port.
[[nodiscard]] std::string ip_text(const IpAddress& address);
[[nodiscard]] std::string address_text(const NodeAddress& node);
[[nodiscard]] std::string address_text(const IpPort& address);
// The same of whoever has this address in frames.
[[nodiscard]] std::string address_text(const NodeConfig& config, uint32_t ip);

// Whether sockets alone can tell the nodes apart.
[[nodiscard]] bool needs_sockets(const NodeConfig& config) noexcept;
// Headers between the MTU of IP and that of the exchange: kIpUdpBytes, or 48 of IPv6.
[[nodiscard]] size_t ip_udp_bytes(const NodeConfig& config) noexcept;

}  // namespace gradlane
