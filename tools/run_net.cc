// run_net.cc - the network of `gradlane run --link veth` (main thread: set-up and end; removal: the warden too)
#include "tools/run_net.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <numeric>
#include <utility>

#include "compress/error.h"
#include "tools/child.h"

namespace gradlane {
namespace {

constexpr const char* kFolder = "/run/netns/";  // where `ip netns` keeps names
constexpr const char* kBridge = "br0";
constexpr double kLeastRate = 1e6;
constexpr double kMostRate = 100e9;
constexpr uint64_t kLeastBurst = 64 << 10;
constexpr uint64_t kBurstsPerSecond = 500;
constexpr uint64_t kQueuedPackets = 256;
constexpr size_t kEthernet = 14;
constexpr size_t kFrameSpare = 80;  // what AF_PACKET puts before a packet, and the Ethernet header

// Of iproute2. Not everybody's PATH has the folders of root's programs.
std::string find_tool(const std::string& name) {
  for (const std::string& each : {name, "/usr/sbin/" + name, "/sbin/" + name}) {
    if (command_fault(each) == 0) return each;
  }
  throw SetupError(
      fmt::format("--link veth needs the command '{}', and it is not there: install iproute2 "
                  "(tools/setup.sh does), or leave it out",
                  name));
}

// All that a program prints, until its end of the pipe is closed.
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

// In the namespace where this process is. Without that part of the kernel there is nothing to set.
void set_kernel(const char* name, const char* value) {
  std::ofstream file(fmt::format("/proc/sys/net/{}", name));
  file << value << '\n';
}

// In the namespace where this process is: each frame is what it will be on a cable, with all its checksums.
void turn_offloads_off(const std::string& interface) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const int what : {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO}) {
    ethtool_value value = {static_cast<uint32_t>(what), 0};
    ifreq request = {};
    interface.copy(static_cast<char*>(request.ifr_name), IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (ioctl(fd, SIOCETHTOOL, &request) == 0 || errno == EOPNOTSUPP) continue;
    const int error = errno;
    close(fd);
    throw SetupError(fmt::format("cannot turn offloads of {} off: {}", interface, std::strerror(error)));
  }
  close(fd);
}

std::string port_name(unsigned node) { return fmt::format("n{}", node); }

}  // namespace

uint64_t parse_rate(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  std::string unit(rest, end);
  std::ranges::transform(unit, unit.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  constexpr std::array<std::pair<const char*, double>, 4> kUnits = {
      {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};
  for (const auto& [name, factor] : kUnits) {
    if (error != std::errc() || unit != name) continue;
    if (value * factor >= kLeastRate && value * factor <= kMostRate) return static_cast<uint64_t>(value * factor);
  }
  throw SetupError(fmt::format("--rate '{}': must be 1mbit to 100gbit, as in 1gbit, 200mbit, 2.5gbit", text));
}

ShaperSizes shaper_sizes(uint64_t rate, size_t mtu) {
  const uint64_t burst = std::max(kLeastBurst, rate / 8 / kBurstsPerSecond);
  return {burst, burst + kQueuedPackets * (mtu + kEthernet)};
}

std::string veth_device(size_t mtu) {
  // A frame must fit the daemon's packet buffers too, so it is not much longer than it must be; a block is whole frames
  // and whole pages.
  const size_t frame = std::max(size_t{2048}, (mtu + kFrameSpare + 15) / 16 * 16);
  const size_t block = std::lcm(frame, size_t{4096});
  return fmt::format("net_af_packet0,iface={},qdisc_bypass=0,framesz={},blocksz={}", kVethName, frame, block);
}

// ---- Namespaces

std::vector<std::string> run_spaces(const RunPlan& plan) {
  std::vector<std::string> names;
  if (plan.link != RunPlan::Link::kVeth) return names;
  for (unsigned i = 0; i < plan.nodes; ++i) names.push_back(fmt::format("gradlane-{}-n{}", getpid(), i));
  names.push_back(fmt::format("gradlane-{}-sw", getpid()));
  return names;
}

// As `ip netns del` does.
void remove_spaces(const std::vector<std::string>& names) noexcept {
  for (const std::string& name : names) {
    const std::string path = kFolder + name;
    (void)umount2(path.c_str(), MNT_DETACH);
    (void)unlink(path.c_str());
  }
}

InSpace::InSpace(const std::string& name) {
  if (name.empty()) return;
  before_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open((kFolder + name).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = before_ >= 0 && there >= 0 && setns(there, CLONE_NEWNET) == 0;
  const int error = errno;
  if (there >= 0) close(there);
  if (entered) return;
  if (before_ >= 0) close(before_);
  throw SetupError(fmt::format("cannot enter the network namespace {}: {}", name, std::strerror(error)));
}

InSpace::~InSpace() {
  if (before_ < 0) return;
  // Nothing can be right in the wrong place; the warden clears up.
  if (setns(before_, CLONE_NEWNET) != 0) std::terminate();
  close(before_);
}

// ---- What is in them

RunNet::RunNet(std::vector<std::string> names, const RunWarden& warden) : names_(std::move(names)), warden_(warden) {
  for (const std::string& name : names_) {
    if (access((kFolder + name).c_str(), F_OK) != 0) continue;
    throw SetupError(fmt::format("there is a network namespace {} already: 'ip netns del {}' removes it", name, name));
  }
}

// Once the other constructor is through, the destructor runs whatever happens here.
RunNet::RunNet(const RunPlan& plan, const RunWarden& warden) : RunNet(run_spaces(plan), warden) {
  if (names_.empty()) return;
  for (const std::string& name : names_) add_space(name);
  {
    const InSpace in(names_.back());
    run({"ip", "link", "add", kBridge, "mtu", std::to_string(plan.mtu), "up", "type", "bridge", "mcast_snooping", "0"});
    turn_offloads_off(kBridge);
    for (unsigned node = 0; node < plan.nodes; ++node) add_cable(plan, node);
  }
  for (unsigned node = 0; node < plan.nodes; ++node) {
    const InSpace in(names_[node]);
    run({"ip", "link", "set", kVethName, "up"});
    turn_offloads_off(kVethName);
    keep_from_kernel(kVethName);
    shape(plan, kVethName);
  }
}

RunNet::~RunNet() { remove_spaces(names_); }

void RunNet::add_space(const std::string& name) const {
  run({"ip", "netns", "add", name},
      "; --link veth needs network namespaces: where a container has none, start it with --privileged, "
      "or leave it out");
  const InSpace in(name);
  // Interfaces send nothing of their own.
  set_kernel("ipv6/conf/all/disable_ipv6", "1");
  set_kernel("ipv6/conf/default/disable_ipv6", "1");
  // The bridge is a switch: it does not show packets to the machine's firewall, which takes longer than all the rest.
  for (const char* const table : {"iptables", "ip6tables", "arptables"}) {
    set_kernel(fmt::format("bridge/bridge-nf-call-{}", table).c_str(), "0");
  }
}

// From the switch's namespace, where this process is, to the node's.
void RunNet::add_cable(const RunPlan& plan, unsigned node) const {
  const std::string mtu = std::to_string(plan.mtu);
  run({"ip", "link", "add", port_name(node), "mtu", mtu, "master", kBridge, "up", "type", "veth", "peer", "name",
       kVethName, "mtu", mtu, "netns", names_[node]});
  turn_offloads_off(port_name(node));
  shape(plan, port_name(node));
}

void RunNet::shape(const RunPlan& plan, const std::string& interface) const {
  if (plan.rate == 0) return;
  const auto [burst, limit] = shaper_sizes(plan.rate, plan.mtu);
  run({"tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", fmt::format("{}bit", plan.rate), "burst",
       std::to_string(burst), "limit", std::to_string(limit)},
      "; --rate needs the kernel's tbf (sch_tbf): 'modprobe sch_tbf', or leave --rate out");
}

// What comes in is for the daemon's packet socket. Behind that the kernel would look for a route for each packet, find
// none, and drop it: a tenth of all the work. Without nftables it does so.
void RunNet::keep_from_kernel(const std::string& interface) const {
  try {
    run({"nft", "table netdev gradlane {\nchain input {\ntype filter hook ingress device " + interface +
                    " priority 0; policy drop;\n}\n}"});
  } catch (const SetupError&) {
  }
}

void RunNet::run(const std::vector<std::string>& command, const char* hint) const {
  ChildSpec spec;
  spec.command = command;
  spec.command.front() = find_tool(command.front());
  spec.environment = environment_with({"LC_ALL=C"});
  spec.one_pipe = true;
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  const Child child = start_child(spec, mask);
  warden_.started(child.pid);
  const std::string words = read_all(child.out);
  siginfo_t info = {};
  while (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) continue;
  warden_.ended(child.pid);
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (status == 0) return;
  throw SetupError(fmt::format("'{}' {}: {}{}", fmt::join(command, " "), ending_text(status), words, hint));
}

}  // namespace gradlane
