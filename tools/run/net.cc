// net.cc - the network of `gradlane run --link veth`, udp and accelerator (main thread: set-up and end)
#include "tools/run/net.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "tools/run/child.h"
#include "tools/run/interface.h"
#include "tools/run/namespaces.h"

namespace gradlane {
namespace {

constexpr const char* kBridge = "br0";

// Returns all that a program prints, until it has closed its end of the pipe. Closes `fd`.
std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer = {};
  for (pollfd event = {fd, POLLIN, 0};;) {
    if (poll(&event, 1, -1) < 0 && errno != EINTR) break;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  }
  close(fd);
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Return the names of the switch's ports to a node.
std::string port_name(unsigned node) { return fmt::format("n{}", node); }
std::string inside_port_name(unsigned node) { return fmt::format("e{}", node); }

}  // namespace

RunNet::RunNet(std::vector<std::string> names, const RunSettings& plan, const CleanupGuard& cleanup_guard)
    : names_(std::move(names)), plan_(plan), cleanup_guard_(cleanup_guard) {
  require_new_spaces(names_);
}

// When the other constructor has returned, the destructor runs even if this constructor throws.
RunNet::RunNet(const RunSettings& plan, const CleanupGuard& cleanup_guard)
    : RunNet(run_namespaces(plan), plan, cleanup_guard) {
  if (names_.empty()) return;
  for (const std::string& name : names_) add_space(name);
  const bool behind = plan.has_accelerators();
  {
    const InNetworkNamespace in(names_.back());
    run({"ip", "link", "add", kBridge, "mtu", std::to_string(plan.mtu), "up", "type", "bridge", "mcast_snooping", "0"});
    const bool sockets = plan.link == RunSettings::Link::kUdp;
    if (!sockets) turn_offloads_off(kBridge);
    for (unsigned node = 0; node < plan.nodes; ++node) {
      add_cable(node, port_name(node), behind ? kWirePortName : kVethName);
      if (!sockets) turn_offloads_off(port_name(node));
      if (plan.inside) add_cable(node, inside_port_name(node), kInsideName);
    }
  }
  for (unsigned node = 0; node < plan.nodes; ++node) {
    const InNetworkNamespace in(names_[node]);
    if (plan.link == RunSettings::Link::kAccelerator) {
      add_host(node);
      continue;
    }
    if (plan.link == RunSettings::Link::kUdp) {
      run({"ip", "link", "set", kVethName, "up"});
      shape(kVethName);
      add_address(node);
      if (plan.inside) add_kernel_network(node);
      continue;
    }
    finish_cable(kVethName);
    keep_from_kernel(kVethName);
    if (plan.inside) add_kernel_network(node);
  }
}

RunNet::~RunNet() { remove_spaces(names_); }

void RunNet::add_space(const std::string& name) const {
  run({"ip", "netns", "add", name},
      fmt::format("; --link {} needs network namespaces: if a container has none, start it with --privileged, "
                  "or use another --link",
                  plan_.link_name));
  const InNetworkNamespace in(name);
  // Without IPv6, interfaces send no packets of their own.
  set_kernel("ipv6/conf/all/disable_ipv6", "1");
  set_kernel("ipv6/conf/default/disable_ipv6", "1");
  // The bridge is a switch. The machine's firewall must not see its packets, because that would take longer than
  // everything else.
  for (const char* const table : {"iptables", "ip6tables", "arptables"}) {
    set_kernel(fmt::format("bridge/bridge-nf-call-{}", table), "0");
  }
}

// Adds a veth pair from the switch's namespace, where this process is, to the node's.
void RunNet::add_cable(unsigned node, const std::string& port, const std::string& end) const {
  const std::string mtu = std::to_string(plan_.mtu);
  run({"ip", "link", "add", port, "mtu", mtu, "master", kBridge, "up", "type", "veth", "peer", "name", end, "mtu", mtu,
       "netns", names_[node]});
  shape(port);
}

// Sets up the node's end of a veth pair, in the node's namespace, where this process is.
void RunNet::finish_cable(const std::string& end) const {
  run({"ip", "link", "set", end, "up"});
  turn_offloads_off(end);
  shape(end);
}

// Adds the address for the node's sockets, in the node's namespace, where this process is.
void RunNet::add_address(unsigned node) const {
  if (!plan_.ipv6) {
    run({"ip", "address", "add", node_address(node) + "/24", "dev", kVethName});
    return;
  }
  set_kernel(fmt::format("ipv6/conf/{}/disable_ipv6", kVethName), "0");
  // No other node has the address, so duplicate address detection is not needed.
  run({"ip", "address", "add", node_ipv6_address(node) + "/64", "dev", kVethName, "nodad"});
}

// Adds a network for commands in the node's namespace, in addition to gradlane's interface. The kernel does all of it,
// offloads included.
void RunNet::add_kernel_network(unsigned node) const {
  // By default, a kernel answers ARP for its addresses at any interface, also at gradlane's. Packets to gradlane's
  // interface would be lost, or would not go through the link that is meant for them.
  set_kernel("ipv4/conf/all/arp_ignore", "1");
  run({"ip", "link", "set", "lo", "up"});
  run({"ip", "link", "set", kInsideName, "up"});
  shape(kInsideName);
  run({"ip", "address", "add", inside_address(node) + "/24", "dev", kInsideName});
}

void RunNet::shape(const std::string& interface) const {
  if (plan_.rate == 0) return;
  const auto [burst, limit] = shaper_sizes(plan_.rate, plan_.mtu);
  run({"tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", fmt::format("{}bit", plan_.rate), "burst",
       std::to_string(burst), "limit", std::to_string(limit)},
      "; --rate needs the kernel's tbf (sch_tbf): 'modprobe sch_tbf', or leave --rate out");
}

// Keeps incoming packets from the kernel, because they are for the daemon's packet socket. Otherwise the kernel looks
// for a route for each packet, finds none, and drops it, which is a tenth of all the work. If nftables is not
// installed, the kernel does that work.
void RunNet::keep_from_kernel(const std::string& interface) const {
  try {
    drop_input(interface);
  } catch (const SetupError&) {
  }
}

void RunNet::drop_input(const std::string& interface) const {
  run({"nft", "table netdev gradlane {\nchain " + interface + " {\ntype filter hook ingress device " + interface +
                  " priority 0; policy drop;\n}\n}"},
      "; --link accelerator needs nftables: tools/setup.sh installs it");
}

// Returns the path of a tool of iproute2 or nftables. Some users' PATH lacks the folders of root's programs.
std::string RunNet::find_tool(const std::string& name) const {
  for (const std::string& each : {name, "/usr/sbin/" + name, "/sbin/" + name}) {
    if (command_fault(each) == 0) return each;
  }
  throw SetupError(
      fmt::format("--link {} needs the command '{}', which was not found: install {} "
                  "(tools/setup.sh does), or use another --link",
                  plan_.link_name, name, name == "nft" ? "nftables" : "iproute2"));
}

void RunNet::run(const std::vector<std::string>& command, const std::string& hint) const {
  ChildSpec spec;
  spec.command = command;
  spec.command.front() = find_tool(command.front());
  spec.environment = environment_with({"LC_ALL=C"});
  spec.one_pipe = true;
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  const Child child = start_child(spec, mask);
  cleanup_guard_.started(child.pid);
  const std::string words = read_all(child.out);
  siginfo_t info = {};
  while (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) continue;
  cleanup_guard_.ended(child.pid);
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (status == 0) return;
  throw SetupError(fmt::format("'{}' {}: {}{}", fmt::join(command, " "), ending_text(status), words, hint));
}

}  // namespace gradlane
