// addresses.h - addresses of nodes: the ones at which their sockets are reached, and the ones that frames carry instead
// (set-up and control threads)
//
// Frames have IPv4 headers and one range of UDP ports, whatever kind of port carries them (dataplane/udp/). If all
// nodes have different IPv4 addresses, frames have these. Otherwise (IPv6, or several nodes at one address) frames have
// made-up addresses, which are the same on all nodes. Ports of sockets replace them by the real ones, so they never
// leave a machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/config.h"

namespace gradlane {

inline constexpr uint32_t kMadeUpIp = 0xf0000001;    // 240.0.0.1 for rank 0, and so on: no host has these (RFC 1112)
inline constexpr uint32_t kStrangerIp = 0xf0fffffe;  // address in frames of a sender that is no node

[[nodiscard]] IpAddress ip_address(uint32_t ip) noexcept;  // from an IPv4 address in host byte order
[[nodiscard]] std::optional<uint32_t> ipv4_of(const IpAddress& address) noexcept;

// Parses 10.77.0.1 or fd00::1. ::ffff:10.77.0.1 is the same as 10.77.0.1.
[[nodiscard]] std::optional<IpAddress> parse_address(std::string_view text);
// Parses 10.77.0.1:9400 or [fd00::1]:9400.
[[nodiscard]] std::optional<IpPort> parse_ip_port(std::string_view text);
[[nodiscard]] bool is_loopback(const IpAddress& address) noexcept;
// Returns whether this is a link-local IPv6 address (fe80::/10), which is valid only with an interface.
[[nodiscard]] bool is_of_one_link(const IpAddress& address) noexcept;
// Returns whether this is the address of one host: not multicast, "this" network, or link-local.
[[nodiscard]] bool is_host(const IpAddress& address) noexcept;

// Return the address and the first UDP port to which packets for a node go.
[[nodiscard]] IpAddress address_of(const NodeAddress& node) noexcept;
[[nodiscard]] uint16_t udp_port_of(const NodeConfig& config, const NodeAddress& node) noexcept;

// Return text for messages: "10.77.0.1", "fd00::1", or "[fd00::1]:19000" if the node has its own UDP port.
[[nodiscard]] std::string ip_text(const IpAddress& address);
[[nodiscard]] std::string address_text(const NodeAddress& node);
[[nodiscard]] std::string address_text(const IpPort& address);
// Returns such text for the node that has this address in frames.
[[nodiscard]] std::string address_text(const NodeConfig& config, uint32_t ip);

// Returns whether only ports of sockets can distinguish the nodes.
[[nodiscard]] bool needs_sockets(const NodeConfig& config) noexcept;
// Returns the bytes of headers between the MTU of IP and that of the exchange: kIpUdpBytes, or 48 for IPv6.
[[nodiscard]] size_t ip_udp_bytes(const NodeConfig& config) noexcept;
// Returns whether all nodes have addresses of loopback.
[[nodiscard]] bool all_on_loopback(const NodeConfig& config) noexcept;
// Returns whether packets go through a network, and not only through memory or the loopback interface of this machine.
[[nodiscard]] bool uses_network(const NodeConfig& config) noexcept;
// Returns the most datagrams in which a packet of the exchange goes; 1: packets are no longer than a datagram.
[[nodiscard]] size_t most_segments(const NodeConfig& config) noexcept;

}  // namespace gradlane
