// links.cc - checks of the kernel's interfaces that ports use (main thread only)
#include "tools/check/links.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "config/addresses.h"
#include "config/values.h"
#include "dataplane/kernel/kernel_interface.h"
#include "tools/check/host.h"

namespace gradlane {
namespace {

// Asks the kernel about one interface, in the network namespace of this process.
class Interface {
 public:
  explicit Interface(const std::string& name) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    name.copy(request_.ifr_name, sizeof(request_.ifr_name) - 1);
  }
  ~Interface() {
    if (fd_ >= 0) close(fd_);
  }
  Interface(const Interface&) = delete;
  Interface& operator=(const Interface&) = delete;

  [[nodiscard]] bool exists() { return ask(SIOCGIFINDEX); }
  [[nodiscard]] bool has_flag(int flag) { return ask(SIOCGIFFLAGS) && (request_.ifr_flags & flag) != 0; }
  [[nodiscard]] size_t mtu() { return ask(SIOCGIFMTU) ? static_cast<size_t>(request_.ifr_mtu) : 0; }
  [[nodiscard]] std::string driver() {
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    return ask_ethtool(&info) ? std::string(info.driver) : "";
  }
  [[nodiscard]] bool is_on(uint32_t command) {
    ethtool_value value{.cmd = command, .data = 0};
    return ask_ethtool(&value) && value.data != 0;
  }

 private:
  bool ask(unsigned long what) { return ioctl(fd_, what, &request_) == 0; }
  bool ask_ethtool(void* what) {
    request_.ifr_data = static_cast<char*>(what);
    return ask(SIOCETHTOOL);
  }

  int fd_;
  ifreq request_{};
};

// Reports a veth with offloads. With offloads, packets of other programs arrive with an incomplete checksum, or longer
// than the MTU.
void check_veth(const std::string& name, CheckReport& report) {
  Interface interface(name);
  if (interface.driver() != "veth") return;
  const bool on = interface.is_on(ETHTOOL_GTXCSUM) || interface.is_on(ETHTOOL_GTSO) || interface.is_on(ETHTOOL_GGRO);
  if (!on) return;
  report.note("interface " + name,
              fmt::format("a veth with offloads: packets of other programs, such as ping, arrive damaged; run ethtool "
                          "-K {} tx off tso off gso off gro off, on both ends",
                          name));
}

void check_cut_off(const PortConfig& port, const std::string& what, CheckReport& report) {
  const CutOff cut_off = cut_off_by_xdp(port);
  if (cut_off.address.empty()) return;
  if (cut_off.all) return report.fail(what, cut_off_text(port, cut_off), cut_off_advice(port));
  report.note(what, fmt::format("{}; {}", cut_off_text(port, cut_off), cut_off_advice(port)));
}

}  // namespace

bool check_interface(const PortConfig& port, const std::string& name, size_t mtu, bool own, CheckReport& report) {
  const std::string what = fmt::format("interface {} of port {}", name, port.name);
  Interface interface(name);
  if (!interface.exists()) {
    if (own) {
      report.fail(what, "there is no such interface", "`ip link` lists the interfaces of this network namespace");
    } else {
      report.note(what, "not in this network namespace; the daemon may be in another one");
    }
  } else if (!interface.has_flag(IFF_UP)) {
    report.fail(what, "it is down", fmt::format("ip link set {} up", name));
  } else if (!interface.has_flag(IFF_RUNNING)) {
    report.fail(what, "no carrier", "check the cable, and the port of the switch at its other end");
  } else if (const size_t has = interface.mtu(); has < mtu) {
    report.fail(what, fmt::format("its MTU is {}, but the configuration has {}", has, mtu),
                fmt::format("ip link set {} mtu {}, or mtu: {} on all nodes", name, mtu, has));
  } else {
    report.ok(fmt::format("{}: up, MTU {}", what, has));
    check_cut_off(port, what, report);
    return true;
  }
  return false;
}

size_t interface_mtu(const std::string& name) { return Interface(name).mtu(); }

void check_interfaces(const NodeConfig& config, bool own, CheckReport& report) {
  bool any = false;
  for (const PortConfig& port : config.ports) {
    const std::string name = interface_of(port);
    if (name.empty()) continue;
    any = true;
    if (check_interface(port, name, config.mtu, own, report)) check_veth(name, report);
  }
  const IpAddress ip = address_of(config.nodes[config.rank]);
  const std::string owner = any ? owner_of(ip) : "";
  if (owner.empty()) return;
  report.fail(
      fmt::format("address {}", ip_text(ip)),
      fmt::format("the kernel has it too, on {}, so the kernel answers in place of gradlane and refuses its packets",
                  owner),
      fmt::format("ip addr del {} dev {}, or set another address in `nodes`", ip_text(ip), owner));
}

}  // namespace gradlane
