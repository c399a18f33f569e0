// host_ip.cc - addresses of hosts, of IPv4 and IPv6, as numbers (set-up only)
#include "config/host_ip.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace gradlane {

bool HostIp::loopback() const noexcept {
  if (!ipv6) return bytes[0] == 127;
  return std::ranges::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t it) { return it == 0; }) && bytes[15] == 1;
}

bool HostIp::of_one_link() const noexcept { return ipv6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

std::optional<HostIp> parse_host_ip(const std::string& text) noexcept {
  HostIp ip;
  if (inet_pton(AF_INET, text.c_str(), ip.bytes.data()) == 1) return ip;
  in6_addr address{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return std::nullopt;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    std::memcpy(ip.bytes.data(), &address.s6_addr[12], 4);
    return ip;
  }
  ip.ipv6 = true;
  std::memcpy(ip.bytes.data(), &address, sizeof(address));
  return ip;
}

std::string host_ip_text(const HostIp& ip) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  (void)inet_ntop(ip.ipv6 ? AF_INET6 : AF_INET, ip.bytes.data(), text.data(), text.size());
  return text.data();
}

}  // namespace gradlane
