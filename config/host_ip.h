// host_ip.h - addresses of hosts, of IPv4 and IPv6, as numbers (set-up only)
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace gradlane {

// An address as a number. IPv4-mapped ones of IPv6 are IPv4.
struct HostIp {
  std::array<uint8_t, 16> bytes{};  // network byte order; of IPv4: the first four
  bool ipv6 = false;

  auto operator<=>(const HostIp&) const = default;
  [[nodiscard]] bool loopback() const noexcept;
  [[nodiscard]] bool of_one_link() const noexcept;  // fe80::/10, which needs the name of an interface beside it
};
[[nodiscard]] std::optional<HostIp> parse_host_ip(const std::string& text) noexcept;
[[nodiscard]] std::string host_ip_text(const HostIp& ip);

}  // namespace gradlane
