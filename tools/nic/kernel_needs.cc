// kernel_needs.cc - routes and connections of the kernel in /proc (main thread only)
#include "tools/nic/kernel_needs.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "base/parse.h"

namespace gradlane {
namespace {

constexpr size_t kLargestProcFile = size_t{32} << 20;
constexpr unsigned kDeepest = 8;            // interfaces on top of each other
constexpr uint64_t kRejects = 0x200;        // RTF_REJECT
constexpr const char* kEstablished = "01";  // TCP_ESTABLISHED
constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};  // IPv4 in IPv6: ::ffff:0:0/96

// An IPv6 address, or an IPv4 one in its IPv6 form.
using Address = std::array<uint8_t, 16>;

struct Route {
  std::string interface;
  Address to{};
  unsigned bits = 0;  // length of the prefix, with the 96 bits of kMapped for IPv4
};

struct Connection {
  Address peer{};
  uint64_t port = 0;  // of this machine
};

std::vector<std::vector<std::string>> table(const Host& host, const std::string& path) {
  std::istringstream text(host.text(path, kLargestProcFile));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; row.size() < 16 && words >> word;) row.push_back(word);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Returns an address from hexadecimal digits, which are words of 32 bits in the CPU's byte order, as in /proc/net/tcp.
std::optional<Address> address_from_words(std::string_view digits) {
  Address address{};
  std::ranges::copy(kMapped, address.begin());
  if (digits.size() != 8 && digits.size() != 32) return std::nullopt;
  for (size_t at = 0; at < digits.size(); at += 8) {
    const auto word = parse_hex(digits.substr(at, 8));
    if (!word) return std::nullopt;
    const auto value = static_cast<uint32_t>(*word);
    std::memcpy(address.data() + (digits.size() == 8 ? 12 : at / 2), &value, sizeof(value));
  }
  return address;
}

// Returns an address from 32 hexadecimal digits in network order, as in /proc/net/ipv6_route.
std::optional<Address> address_from_bytes(std::string_view digits) {
  Address address{};
  if (digits.size() != 2 * address.size()) return std::nullopt;
  for (size_t i = 0; i < address.size(); ++i) {
    const auto byte = parse_hex(digits.substr(2 * i, 2));
    if (!byte) return std::nullopt;
    address[i] = static_cast<uint8_t>(*byte);
  }
  return address;
}

std::vector<Route> routes_of(const Host& host) {
  std::vector<Route> routes;
  for (const auto& row : table(host, "/proc/net/route")) {
    if (row.size() < 8) continue;
    const auto to = address_from_words(row[1]);
    const auto mask = parse_hex(row[7]);
    if (to && mask) routes.push_back({row[0], *to, 96U + static_cast<unsigned>(__builtin_popcountll(*mask))});
  }
  for (const auto& row : table(host, "/proc/net/ipv6_route")) {
    if (row.size() < 10 || row[9] == "lo" || (parse_hex(row[8]).value_or(kRejects) & kRejects) != 0) continue;
    const auto to = address_from_bytes(row[0]);
    const auto bits = parse_hex(row[1]);
    if (to && bits && *bits <= 128) routes.push_back({row[9], *to, static_cast<unsigned>(*bits)});
  }
  return routes;
}

bool is_ipv4(const Address& address) { return std::equal(kMapped.begin(), kMapped.end(), address.begin()); }

bool is_default(const Route& route) { return route.bits == (is_ipv4(route.to) ? 96U : 0U); }

bool leads_to(const Route& route, const Address& address) {
  for (unsigned bit = 0; bit < std::min(route.bits, 128U); ++bit) {
    if (((route.to[bit / 8] ^ address[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return is_ipv4(route.to) == is_ipv4(address);
}

std::vector<Connection> connections_of(const Host& host) {
  std::vector<Connection> found;
  for (const char* const path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const auto& row : table(host, path)) {
      if (row.size() < 4 || row[3] != kEstablished) continue;
      const size_t own = row[1].find(':');
      const std::string remote = row[2].substr(0, row[2].find(':'));
      if (own == std::string::npos || row[1].substr(0, own) == remote) continue;  // within this machine
      const auto peer = address_from_words(remote);
      const auto port = parse_hex(std::string_view(row[1]).substr(own + 1));
      if (peer && port) found.push_back({*peer, *port});
    }
  }
  return found;
}

std::string address_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_ipv4(address)) {
    (void)inet_ntop(AF_INET, address.data() + 12, text, sizeof(text));
  } else {
    (void)inet_ntop(AF_INET6, address.data(), text, sizeof(text));
  }
  return text;
}

// Adds an interface and those that it consists of: ports of a bond or bridge, the interface of a VLAN.
void add_with_lower(const Host& host, const std::string& interface, unsigned depth, std::set<std::string>& all) {
  if (depth > kDeepest || interface.find('/') != std::string::npos || !all.insert(interface).second) return;
  for (const std::string& name : host.names("/sys/class/net/" + interface)) {
    if (name.starts_with("lower_")) add_with_lower(host, name.substr(6), depth + 1, all);
  }
}

}  // namespace

std::string kernel_need(const Host& host, const std::vector<std::string>& interfaces) {
  // Returns "eth0 carries WHAT" or "eth0 carries WHAT, as a part of bond0"; "" if `carrier` needs none of them.
  const auto text = [&](const std::string& carrier, const std::string& what) -> std::string {
    std::set<std::string> parts;
    add_with_lower(host, carrier, 0, parts);
    for (const std::string& interface : interfaces) {
      if (!parts.contains(interface)) continue;
      const std::string as = interface == carrier ? "" : ", as a part of " + printable(carrier);
      return fmt::format("{} carries {}{}", printable(interface), what, as);
    }
    return "";
  };
  const std::vector<Route> routes = routes_of(host);
  for (const Route& route : routes) {
    if (!is_default(route)) continue;
    if (const std::string need = text(route.interface, "the default route"); !need.empty()) return need;
  }
  for (const Connection& connection : connections_of(host)) {
    const Route* best = nullptr;
    for (const Route& route : routes) {
      if (leads_to(route, connection.peer) && (best == nullptr || route.bits > best->bits)) best = &route;
    }
    if (best == nullptr) continue;
    const std::string what = fmt::format("a TCP connection of port {}{} with {}", connection.port,
                                         connection.port == 22 ? " (SSH)" : "", address_text(connection.peer));
    if (const std::string need = text(best->interface, what); !need.empty()) return need;
  }
  for (const std::string& interface : interfaces) {
    for (const std::string& name : host.names("/sys/class/net/" + interface)) {
      if (name.starts_with("upper_")) return printable(fmt::format("{} is a part of {}", interface, name.substr(6)));
    }
  }
  return "";
}

}  // namespace gradlane
