// kernel_interface.cc - asking the kernel about its interfaces and CPUs (control thread only)
#include "dataplane/kernel_interface.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <spdlog/fmt/fmt.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "compress/error.h"
#include "dataplane/device.h"

namespace gradlane {
namespace {

constexpr unsigned kMostNodes = 64;
constexpr size_t kMostXdp = 3500;  // a packet of XDP has one page of 4 KiB, and not all of that

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

bool is_af_packet(const PortConfig& port) noexcept {
  return port.kind == PortConfig::Kind::kDevice &&
         (port.device.starts_with("net_af_packet") || port.device.starts_with("eth_af_packet"));
}

bool is_af_xdp(const PortConfig& port) noexcept {
  return port.kind == PortConfig::Kind::kDevice && port.device.starts_with("net_af_xdp");
}

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
    throw SetupError(fmt::format("AF_XDP takes no packets of {} bytes, allowed: an mtu of at most {}, or net_af_packet",
                                 mtu, kMostXdp));
  }
  if (has < mtu) {
    throw SetupError(
        fmt::format("interface {} has MTU {}, and mtu is {}: ip link set {} mtu {}", name, has, mtu, name, mtu));
  }
  request = request_for(name);
  if (ask(SIOCGIFFLAGS, request) && (request.ifr_flags & IFF_UP) != 0) return "";
  return fmt::format("interface {} is down: ip link set {} up", name, name);
}

bool interface_running(unsigned index) noexcept {
  ifreq request{};
  if (if_indextoname(index, request.ifr_name) == nullptr || !ask(SIOCGIFFLAGS, request)) return false;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

FileDescriptor make_promiscuous(unsigned index) {
  // A flag of the interface, which rte_eth_promiscuous_enable() sets, would stay after a process that is killed.
  FileDescriptor fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  packet_mreq request{};
  request.mr_ifindex = static_cast<int>(index);
  request.mr_type = PACKET_MR_PROMISC;
  if (!fd || setsockopt(fd.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof(request)) != 0) {
    throw SetupError(std::string("the interface cannot be made promiscuous: ") + std::strerror(errno));
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
