// kernel_interface.cc - asking the kernel about its interfaces and CPUs (control thread only)
#include "dataplane/kernel/kernel_interface.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "config/addresses.h"
#include "config/devargs.h"
#include "config/values.h"

namespace gradlane {
namespace {

constexpr unsigned kMostNodes = 64;
constexpr size_t kMostXdp = 3500;  // longest packet of AF_XDP: it shares one page of 4 KiB with other data

bool ask(unsigned long what, ifreq& request) noexcept {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool answered = fd >= 0 && ioctl(fd, what, &request) == 0;
  if (fd >= 0) close(fd);
  return answered;
}

ifreq request_for(const std::string& name) noexcept {
  ifreq request{};
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  return request;
}

}  // namespace

std::string check_kernel_interface(const PortConfig& port, size_t mtu) {
  const bool xdp = is_af_xdp(port);
  if (!xdp && !is_af_packet(port)) return "";
  const std::string name = devargs_value(port.device, "iface");
  ifreq request = request_for(name);
  if (name.size() >= IFNAMSIZ || !ask(SIOCGIFMTU, request)) {
    throw SetupError(
        fmt::format("there is no interface '{}' here: `ip link` shows those of this network namespace", name));
  }
  const auto has = static_cast<size_t>(request.ifr_mtu);
  if (xdp && mtu > kMostXdp) {
    throw SetupError(fmt::format(
        "AF_XDP cannot receive packets of {} bytes, allowed: an mtu of at most {}, or net_af_packet", mtu, kMostXdp));
  }
  if (has < mtu) {
    throw SetupError(
        fmt::format("interface {} has MTU {}, but mtu is {}: ip link set {} mtu {}", name, has, mtu, name, mtu));
  }
  const CutOff cut_off = cut_off_by_xdp(port);
  if (cut_off.all) throw SetupError(cut_off_text(port, cut_off) + ": " + cut_off_advice(port));
  request = request_for(name);
  if (ask(SIOCGIFFLAGS, request) && (request.ifr_flags & IFF_UP) != 0) {
    return cut_off.address.empty() ? "" : cut_off_text(port, cut_off) + ": " + cut_off_advice(port);
  }
  return fmt::format("interface {} is down: ip link set {} up", name, name);
}

namespace {

// Calls visit(entry) for each address that the kernel has.
template <class Visit>
void for_each_address(Visit visit) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return;
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr != nullptr) visit(*it);
  }
  freeifaddrs(all);
}

uint32_t entry_ipv4(const ifaddrs& entry) {
  sockaddr_in address{};
  std::memcpy(&address, entry.ifa_addr, sizeof(address));
  return ntohl(address.sin_addr.s_addr);
}

IpAddress entry_ipv6(const ifaddrs& entry) {
  sockaddr_in6 address{};
  std::memcpy(&address, entry.ifa_addr, sizeof(address));
  IpAddress ip;
  std::memcpy(ip.data(), &address.sin6_addr, ip.size());
  return ip;
}

// Returns the IPv6 address, or "" if it is link-local. Every interface with IPv6 has such an address, which nobody
// needs.
std::string global_ipv6(const ifaddrs& entry) {
  const IpAddress address = entry_ipv6(entry);
  const bool of_link = address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
  return of_link ? "" : ip_text(address);
}

// Returns the number of receive queues; 0: the driver does not report it.
unsigned receive_queues(const std::string& name) {
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  return ask(SIOCETHTOOL, request) ? channels.rx_count + channels.combined_count : 0;
}

}  // namespace

CutOff cut_off_by_xdp(const PortConfig& port) {
  CutOff result;
  if (!is_af_xdp(port)) return result;
  const std::string name = devargs_value(port.device, "iface");
  result.address = address_on(name);
  const auto taken = parse_whole(devargs_value(port.device, "queue_count")).value_or(1);
  result.all = !result.address.empty() && taken >= receive_queues(name);
  return result;
}

std::string cut_off_text(const PortConfig& port, const CutOff& what) {
  return fmt::format("AF_XDP takes {} away from the kernel, whose address {} is on interface {}",
                     what.all ? "all packets" : "the packets of its queues", what.address,
                     devargs_value(port.device, "iface"));
}

std::string cut_off_advice(const PortConfig& port) {
  const std::string name = devargs_value(port.device, "iface");
  return fmt::format("move that address to another interface (ip addr del ... dev {}), or use net_af_packet0,iface={}",
                     name, name);
}

std::string address_on(const std::string& interface) {
  std::string address;
  for_each_address([&](const ifaddrs& entry) {
    if (interface != entry.ifa_name) return;
    if (entry.ifa_addr->sa_family == AF_INET) address = ip_text(entry_ipv4(entry));
    if (entry.ifa_addr->sa_family == AF_INET6 && address.empty()) address = global_ipv6(entry);
  });
  return address;
}

std::string owner_of(const IpAddress& ip) {
  std::string name;
  for_each_address([&](const ifaddrs& entry) {
    const auto family = entry.ifa_addr->sa_family;
    const bool same =
        (family == AF_INET && ip_address(entry_ipv4(entry)) == ip) || (family == AF_INET6 && entry_ipv6(entry) == ip);
    if (same) name = entry.ifa_name;
  });
  return name;
}

size_t mtu_of(const std::string& name) noexcept {
  ifreq request{};
  name.copy(request.ifr_name, IF_NAMESIZE - 1);
  return ask(SIOCGIFMTU, request) ? static_cast<size_t>(request.ifr_mtu) : SIZE_MAX;
}

bool interface_there(unsigned index) noexcept {
  char name[IF_NAMESIZE];
  return if_indextoname(index, name) != nullptr || (errno != ENXIO && errno != ENODEV);
}

bool interface_running(unsigned index) noexcept {
  ifreq request{};
  if (if_indextoname(index, request.ifr_name) == nullptr || !ask(SIOCGIFFLAGS, request)) return false;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

FileDescriptor make_promiscuous(unsigned index) {
  // A flag of the interface, which rte_eth_promiscuous_enable() sets, would remain after the process was killed. A
  // membership ends with its socket.
  FileDescriptor fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  packet_mreq request{};
  request.mr_ifindex = static_cast<int>(index);
  request.mr_type = PACKET_MR_PROMISC;
  if (!fd || setsockopt(fd.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof(request)) != 0) {
    throw SetupError(std::string("cannot switch the interface to promiscuous mode: ") + std::strerror(errno));
  }
  return fd;
}

int numa_node_of(unsigned cpu, const std::string& root) {
  for (unsigned node = 0; node < kMostNodes; ++node) {
    if (access(fmt::format("{}/node/node{}/cpu{}", root, node, cpu).c_str(), F_OK) == 0) return static_cast<int>(node);
  }
  return -1;
}

}  // namespace gradlane
