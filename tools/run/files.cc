// files.cc - the files of `gradlane run` (set-up and end)
#include "tools/run/files.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "config/strategies.h"
#include "dataplane/node/key_file.h"
#include "tools/run/interface.h"
#include "tools/run/links.h"

namespace gradlane {
namespace {

constexpr std::string_view kFolder = "/gradlane-XXXXXX";
constexpr std::string_view kLongestName = "/link63-62.sock";
// Longest path of a socket, without the final 0.
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

// Longest arguments of a virtual device: rte_dev_probe() of DPDK 24.11 refuses longer ones.
constexpr size_t kMaxDevice = 127;

// Returns the arguments of the device at a node's end of a link between two processes. `id` must be different for each
// device of the node.
std::string device(const RunSettings& plan, bool first, unsigned id, std::string_view socket) {
  if (plan.link == RunSettings::Link::kMemif) {
    return fmt::format("net_memif{},role={},socket={},socket-abstract=no,bsize=9216,rsize=8", id,
                       first ? "server" : "client", socket);
  }
  return first ? fmt::format("net_virtio_user{},path={},server=1,queues={}", id, socket, plan.lanes)
               : fmt::format("net_vhost{},iface={},client=1,queues={}", id, socket, plan.lanes);
}

// Returns how long the path of a directory may be.
size_t longest_folder(const RunSettings& plan) {
  const bool devices = plan.link == RunSettings::Link::kVhost || plan.link == RunSettings::Link::kMemif;
  const size_t room = devices ? kMaxDevice - device(plan, true, kMaxNodes, "").size() : kMaxPath;
  return std::min(room, kMaxPath) - kFolder.size() - kLongestName.size();
}

// Returns whether the directory can be used. Its path is used in device arguments, between commas, and in YAML.
bool usable(const std::string& folder, size_t longest) {
  return folder.starts_with('/') && folder.size() <= longest &&
         folder.find_first_of(" ,'\"\\[]=\n\t") == std::string::npos && access(folder.c_str(), W_OK | X_OK) == 0;
}

std::string make_folder(const RunSettings& plan) {
  const size_t longest = longest_folder(plan);
  for (const char* const name : {"XDG_RUNTIME_DIR", "TMPDIR", ""}) {
    const char* const value = *name != '\0' ? secure_getenv(name) : "/tmp";
    if (value == nullptr || !usable(value, longest)) continue;
    std::string folder = value + std::string(kFolder);
    if (mkdtemp(folder.data()) != nullptr) return folder;
  }
  throw SetupError(
      fmt::format("no directory for sockets: tried XDG_RUNTIME_DIR, TMPDIR and /tmp; set TMPDIR to a "
                  "writable one of at most {} plain characters",
                  longest));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw SetupError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

// Returns the configuration of a node's end of a link.
std::string port(const RunSettings& plan, unsigned node, const RunLink& link, unsigned id, const std::string& folder) {
  const bool first = node == link.from;
  const unsigned other = first ? link.to : link.from;
  const std::string name = !link.of_ring ? fmt::format("to{}", other) : first ? "next" : "prev";
  const std::string socket = fmt::format("{}/link{}-{}.sock", folder, link.from, link.to);
  std::string text = fmt::format("  - name: {}\n", name);
  if (plan.link == RunSettings::Link::kRing) {
    text += link.of_ring ? fmt::format("    ring: link{}\n", link.from)
                         : fmt::format("    ring: link{}-{}\n", link.from, link.to);
  } else {
    text += fmt::format("    device: '{}'\n", device(plan, first, id, socket));
  }
  return text + fmt::format("    nodes: [{}]\n", other);
}

std::string ports(const RunSettings& plan, unsigned node, const std::string& folder) {
  std::string text;
  unsigned id = 0;
  for (const RunLink& link : links_of(plan, node)) text += port(plan, node, link, id++, folder);
  return text;
}

// Time limit for silent neighbours. `gradlane run` itself sees whether a daemon still runs, so the limit is long. A
// silent daemon is only waiting for a CPU of this machine.
constexpr const char* kPeerTimeout = "10s";

std::string workers(const RunSettings& plan) {
  std::string text = fmt::format("workers: {{lanes: {}, threads: {}, idle: {}}}\nlog: {}\n", plan.lanes, plan.lanes,
                                 plan.idle, plan.log);
  text += fmt::format("timeouts: {{peer: {}", kPeerTimeout);
  if (!plan.timeout.empty()) text += fmt::format(", operation: {}", plan.timeout);
  return text + "}\n";
}

std::string accelerator_config(const RunSettings& plan, unsigned node, const std::string& folder) {
  std::string text = fmt::format("# The accelerator of node {} of {}, written by gradlane run\n", node, plan.nodes);
  text += fmt::format("mode: accelerator\nhost: {{device: '{}'}}\nwire: {{device: '{}'}}\n",
                      accelerator_device(0, kHostPortName, plan.mtu), accelerator_device(1, kWirePortName, plan.mtu));
  text += fmt::format("codec: '{}'\nmtu: {}\nrepack: {{enabled: {}}}\n", plan.codec, plan.mtu, plan.repack);
  return text +
         fmt::format("worker: {{idle: {}}}\nadmin: '{}/n{}.admin'\nlog: {}\n", plan.idle, folder, node, plan.log);
}

// Returns a node's address, with its UDP port if nodes share the address.
std::string address_entry(const RunSettings& plan, unsigned node) {
  const bool loopback = plan.link == RunSettings::Link::kUdp && !plan.has_namespaces();
  if (!plan.ipv6) return loopback ? loopback_address(node, plan.job) : node_address(node);
  return loopback ? fmt::format("'::1', udp_port: {}", loopback_port(plan, node))
                  : fmt::format("'{}'", node_ipv6_address(node));
}

std::string key_file(const std::string& folder) { return folder + "/ring.key"; }

}  // namespace

std::string run_config(const RunSettings& plan, unsigned node, const std::string& folder) {
  if (plan.link == RunSettings::Link::kAccelerator) return accelerator_config(plan, node, folder);
  std::string text =
      fmt::format("# Node {} of {}, written by gradlane run\nrank: {}\nnodes:\n", node, plan.nodes, node);
  for (unsigned i = 0; i < plan.nodes; ++i) {
    text += fmt::format("  - {{rank: {}, ip: {}}}\n", i, address_entry(plan, i));
  }
  text += fmt::format("trainers: {}\nlocal_reduce: {}\n", plan.trainers, plan.local_reduce);
  text += fmt::format("socket: '{}/n{}.sock'\ncodec: '{}'\nmtu: {}\n", folder, node, plan.codec, plan.mtu);
  if (plan.metrics != 0) text += fmt::format("metrics: 127.0.0.1:{}\n", plan.metrics + node);
  if (plan.strategies != std::vector{StrategyId{}}) {
    text += fmt::format("strategies: ['{}']\n", fmt::join(strategy_names(plan.strategies), "', '"));
  }
  text += fmt::format("security: {}\n", plan.security);
  if (plan.security != "none") text += fmt::format("auth: {{key_file: '{}'}}\n", key_file(folder));
  text += plan.nodes == 1 ? "ports: []\n" : "ports:\n";
  if (plan.link == RunSettings::Link::kUdp) {
    if (plan.nodes > 1) text += "  - {udp: auto}\n";
    return text + workers(plan);
  }
  if (plan.link == RunSettings::Link::kVeth) {
    if (plan.nodes > 1) text += fmt::format("  - device: '{}'\n", veth_device(plan.mtu));
    // The kernel's shapers release packets one by one, by a timer. If more packets wait, fewer timers expire for
    // nothing.
    return text + workers(plan) + "exchange: {queue_target: 32}\n";
  }
  return text + ports(plan, node, folder) + workers(plan);
}

RunFiles::RunFiles(std::string folder) : folder_(std::move(folder)) {}

// When the other constructor has returned, the destructor runs even if this constructor throws.
RunFiles::RunFiles(const RunSettings& plan) : RunFiles(make_folder(plan)) {
  if (!plan.has_daemons()) return;
  std::error_code error;
  if (!plan.keep_configs.empty()) std::filesystem::create_directories(plan.keep_configs, error);
  if (plan.security != "none") (void)make_key_file(key_file(folder_));
  if (error) throw SetupError(fmt::format("--keep-configs '{}': {}", plan.keep_configs, error.message()));
  for (unsigned node = 0; node < plan.nodes; ++node) {
    const std::string text = run_config(plan, node, folder_);
    write_file(config(node), text);
    if (!plan.keep_configs.empty()) write_file(fmt::format("{}/n{}.yaml", plan.keep_configs, node), text);
  }
}

RunFiles::~RunFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string RunFiles::socket(unsigned node) const { return fmt::format("{}/n{}.sock", folder_, node); }
std::string RunFiles::admin(unsigned node) const { return fmt::format("{}/n{}.admin", folder_, node); }
std::string RunFiles::config(unsigned node) const { return fmt::format("{}/n{}.yaml", folder_, node); }

}  // namespace gradlane
