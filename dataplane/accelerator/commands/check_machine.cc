// check_machine.cc - verdicts about the machine that an accelerator runs on: rights, interfaces (main thread only)
#include "dataplane/accelerator/commands/check_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "config/devices.h"
#include "dataplane/accelerator/daemon.h"
#include "dataplane/accelerator/kernel/bypass.h"
#include "dataplane/accelerator/kernel/offloads.h"
#include "dataplane/kernel/ethtool.h"
#include "tools/check/host.h"
#include "tools/check/links.h"

namespace gradlane {
namespace {

std::string label(const std::string& interface, const PortConfig& port) {
  return fmt::format("interface {} of port {}", interface, port.name);
}

// Returns the kernel's addresses of that family on an interface.
std::vector<std::string> addresses_of(const std::string& interface, int family) {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != family || interface != it->ifa_name) continue;
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(it->ifa_addr, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    found.emplace_back(text.data());
  }
  freeifaddrs(all);
  return found;
}

// Reports addresses on the wire's interface. Packets that the kernel sends there do not pass the accelerator.
void check_no_addresses(const std::string& interface, const std::string& what, CheckReport& report) {
  const std::vector<std::string> v4 = addresses_of(interface, AF_INET);
  if (!v4.empty()) {
    report.note(
        what,
        fmt::format("the kernel has {} on it, so packets of the kernel bypass the accelerator; move the address to the "
                    "host's interface with gradlane accelerator up, or remove it with ip addr flush dev {}",
                    fmt::join(v4, ", "), interface));
  }
  if (!addresses_of(interface, AF_INET6).empty()) {
    report.note(what, fmt::format("the kernel uses IPv6 on it, which bypasses the accelerator; switch it off with "
                                  "sysctl -w net.ipv6.conf.{}.disable_ipv6=1",
                                  interface));
  }
}

// Checks the interface that programs use, at the other end of a veth.
void check_host_end(const AcceleratorConfig& config, const std::string& interface, CheckReport& report) {
  const auto peer = veth_peer(interface);
  if (!peer) {
    return report.note(label(interface, config.host),
                       "its other end is not in this network namespace, so the offloads of that end were not checked; "
                       "look at them there with ethtool -k");
  }
  const std::string what = fmt::format("interface {}, the host's end of {}", *peer, interface);
  const size_t mtu = interface_mtu(*peer);
  if (mtu <= config.mtu) return report.ok(fmt::format("{}: MTU {}", what, mtu));
  report.fail(what,
              fmt::format("its MTU is {}, but the configuration has {}: longer packets are dropped", mtu, config.mtu),
              fmt::format("ip link set {} mtu {}", *peer, config.mtu));
}

void check_host_interface(const AcceleratorConfig& config, bool runs, CheckReport& report) {
  const std::string interface = interface_of(config.host);
  if (!interface.empty()) {
    if (check_interface(config.host, interface, config.mtu, !runs, report)) check_host_end(config, interface, report);
  } else if (const std::string made = interface_name(config.host); !made.empty() && !runs) {
    report.note(label(made, config.host), "the daemon creates it, and it disappears when the daemon ends");
  }
}

void check_wire_interface(const AcceleratorConfig& config, bool runs, CheckReport& report) {
  const std::string interface = interface_of(config.wire);
  if (interface.empty() || !check_interface(config.wire, interface, config.mtu, !runs, report)) return;
  check_no_addresses(interface, label(interface, config.wire), report);
}

// Reports whether superpackets pass. Without them the accelerator works, but is slower.
void check_superpackets(const AcceleratorConfig& config, CheckReport& report) {
  const std::string own = interface_of(config.host);
  const auto peer = config.superpackets && !own.empty() ? veth_peer(own) : std::nullopt;
  if (!peer) return;
  for (const std::string& end : {*peer, own}) {
    if (active_features(end).contains("tx-tcp-segmentation")) continue;
    return report.note("superpackets", fmt::format("{} cuts TCP into packets itself, which costs time; switch that off "
                                                   "with gradlane accelerator up --config {}",
                                                   end, config.file));
  }
  report.ok(fmt::format("superpackets of TCP between {} and {}", *peer, own));
}

void check_offloads(const AcceleratorConfig& config, CheckReport& report) {
  const std::vector<std::string> faults = offload_faults(config);
  for (const std::string& fault : faults) report.fail("offloads", fault, "");
  if (sees_interfaces(config) && faults.empty()) report.ok("offloads that change packets are off");
  check_superpackets(config, report);
}

// Returns the state of the host's network without an accelerator, and the commands that fix it.
std::pair<std::string, std::string> without_accelerator(const AcceleratorConfig& config) {
  const Bypass bypass = bypass_of(config);
  const std::string start = fmt::format("gradlaned --config {}", config.file);
  const std::string up = fmt::format("gradlane accelerator up --config {}", config.file);
  if (!bypass.joins()) {
    return {"no packets pass between host and wire without it, and the kernel cannot forward between these ports",
            start};
  }
  if (!bypass.complete()) return {"the interfaces are not set up", up + ", then " + start};
  switch (bypass_state(bypass)) {
    case BypassState::kInPlace:
      return {fmt::format("the kernel forwards packets between {}, so the host sends uncompressed; compressed packets "
                          "for this host are dropped",
                          bypass.ends()),
              start};
    case BypassState::kUnknown:
      return {"only root can see whether the kernel forwards packets without it", start};
    case BypassState::kMissing:
      break;
  }
  return {fmt::format("no packets pass between {} without it: the host has no network over {}", bypass.ends(),
                      config.interface),
          start + "; or, for a network without it, " + up};
}

}  // namespace

bool sees_interfaces(const AcceleratorConfig& config) {
  return interface_mtu(interface_of(config.host)) != 0 || interface_mtu(interface_of(config.wire)) != 0;
}

void check_accelerator_is_missing(const AcceleratorConfig& config, CheckReport& report) {
  // A daemon that ends in good order removes its socket. So a socket without a daemon means that the daemon died.
  const bool died = access(config.admin.c_str(), F_OK) == 0;
  const auto [why, advice] = without_accelerator(config);
  report.fail("daemon",
              fmt::format("no accelerator runs on {}{}: {}", config.admin, died ? " (the last one died)" : "", why),
              advice);
}

void check_accelerator_machine(const AcceleratorConfig& config, bool runs, CheckReport& report) {
  const std::vector<unsigned> cores = config.core ? std::vector{*config.core} : std::vector<unsigned>();
  check_cpus({"worker", "worker.core", cores, 1, config.idle}, report);
  check_numa({config.host, config.wire}, cores, report);
  if (!runs) {
    check_user(config.user, report);
    check_hugepages(config.hugepages ? accelerator_packet_bytes(config) : 0, {config.host, config.wire}, report);
    check_port_permissions(config.host, report);
    check_port_permissions(config.wire, report);
    check_folder("admin", config.admin, report);
  }
  check_host_interface(config, runs, report);
  check_wire_interface(config, runs, report);
  check_offloads(config, report);
  if (config.faults.any()) {
    report.note("faults", "packets from the wire are dropped or damaged on purpose (`faults` in the configuration)");
  }
}

}  // namespace gradlane
