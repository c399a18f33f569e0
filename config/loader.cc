// loader.cc - conversion of a YAML file to a NodeConfig (set-up only)
#include "config/loader.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse.h"
#include "config/addresses.h"
#include "config/choices.h"
#include "config/common_sections.h"
#include "config/key_types.h"
#include "config/nodes.h"
#include "config/ports.h"
#include "config/section.h"
#include "config/strategies.h"
#include "config/words.h"
#include "config/yaml_tree.h"

namespace gradlane {
namespace {

// Keys of an accelerator's file.
constexpr const char* kForeignKeys[] = {"host", "wire", "repack", "connections"};
constexpr KeysElsewhere kElsewhere = {kForeignKeys, "is a key of `mode: accelerator`, but this is a node's file"};

// Finds the rank by the hosts of the nodes, because the file does not name it. `place` is the value of `rank`, if there
// is one.
void find_rank(const Section& root, const std::optional<Value>& place, NodeConfig& config, const NodeChoice& choice) {
  const auto fault = [&](const std::string& text) { place ? place->fault(text) : root.missing("rank", text); };
  const auto is_here = [&choice](const NodeAddress& node) {
    return !node.host.empty() && std::ranges::find(choice.hosts, lower(node.host)) != choice.hosts.end();
  };
  const auto here = std::ranges::count_if(config.nodes, is_here);
  const size_t last = config.nodes.size() - 1;
  if (here == 1) {
    config.rank = std::ranges::find_if(config.nodes, is_here)->rank;
  } else if (here != 0) {
    fault(fmt::format("{} nodes have a `host` that is this machine, allowed: one node; or give --rank 0 to {}", here,
                      last));
  } else if (std::ranges::all_of(config.nodes, [](const NodeAddress& node) { return node.host.empty(); })) {
    fault(fmt::format("{}, but no node has a `host` to find it by, allowed: 0 to {}; or give --rank",
                      place ? "is auto" : "is missing", last));
  } else {
    fault(fmt::format(
        "no node has a `host` that is this machine ({}), allowed: one node that has one; or give --rank 0 to {}",
        fmt::join(choice.hosts, ", "), last));
  }
}

void read_rank(const Section& root, NodeConfig& config, bool table, const NodeChoice& choice) {
  const auto place = root.find("rank");
  const bool to_find = !place || (place->node().kind == YamlNode::Kind::kScalar && place->node().text == kAutoWord);
  if (!to_find) config.rank = static_cast<unsigned>(place->whole(0, kMaxNodes - 1).value_or(0));
  const std::string chosen = choice.rank ? " (--rank)" : "";
  if (choice.rank) config.rank = *choice.rank;
  if (!table) {
    if (!place && !choice.rank) root.missing("rank", "is missing, and has no default");
  } else if (to_find && !choice.rank) {
    find_rank(root, place, config, choice);
  } else if (config.rank >= config.nodes.size()) {
    place.value_or(root.value())
        .fault(fmt::format("{}{} is not in the table of nodes, allowed: 0 to {}", config.rank, chosen,
                           config.nodes.size() - 1));
  }
}

// Reads the nodes and this node's rank. `places` gets the places of the nodes in the file. Returns false if they are
// wrong.
bool read_identity(const Section& root, NodeConfig& config, const NodeChoice& choice, std::vector<NodePlace>& places) {
  const size_t faults = root.value().faults().count();
  if (const auto nodes = root.need("nodes")) places = read_nodes(*nodes, config);
  read_rank(root, config, root.value().faults().count() == faults, choice);
  if (root.value().faults().count() != faults) return false;
  if (world_of(config) > kMaxNodes) {
    root.find("trainers")
        ->fault(fmt::format("{} nodes with {} trainers each are {} ranks, allowed: up to {}", config.nodes.size(),
                            config.trainers, world_of(config), kMaxNodes));
  }
  return true;
}

// Reads the cores. `checked` means that the number of threads is right.
void read_cores(const Value& value, NodeConfig& config, bool checked) {
  const size_t faults = value.faults().count();
  const auto items = value.list("numbers of CPUs");
  if (!items) return;
  for (const Value& item : *items) {
    config.cores.push_back(static_cast<unsigned>(item.whole(0, kMaxCore).value_or(0)));
  }
  if (!checked || value.faults().count() != faults) return;
  if (config.cores.empty() || config.cores.size() == config.threads) return;
  value.fault(
      fmt::format("{} cores for {} threads, allowed: one per thread, or none", config.cores.size(), config.threads));
}

void read_workers(const Section& root, NodeConfig& config) {
  const size_t faults = root.value().faults().count();
  const auto section = read_section(node_keys(), root, "workers", config);
  if (!section) return;
  const bool numbers = root.value().faults().count() == faults;
  if (numbers && config.threads > config.lanes) {
    section->find("threads")->fault(
        fmt::format("{} threads for {} lanes, allowed: 1 to the number of lanes", config.threads, config.lanes));
  }
  if (const auto cores = section->find("cores")) read_cores(*cores, config, numbers);
  read_idle(*section, config.idle);
}

// Only sockets have packets beyond jumbo frames.
void check_mtu(const Section& root, const NodeConfig& config) {
  if (config.mtu <= kMaxFrameMtu || config.ports.empty() || of_sockets(config)) return;
  root.find("mtu")->fault(fmt::format("{} needs `udp` ports, allowed: {} to {}", config.mtu, kMinIpMtu, kMaxFrameMtu));
}

void read_exchange(const Section& root, NodeConfig& config) {
  // One call on a socket passes dozens of packets if that many wait, so more of them may wait than on other ports.
  // The queues of networks are short, so few of the packets that go in many segments wait there.
  if (of_sockets(config)) {
    const bool long_packets = most_segments(config) > 1 && !all_on_loopback(config);
    config.queue_target = long_packets ? kSegmentsQueueTarget : kSocketQueueTarget;
  }
  const auto section = read_section(node_keys(), root, "exchange", config);
  if (section && !std::has_single_bit(config.window)) {
    section->find("window")->fault(fmt::format("{} is not a power of two, allowed: {}, {}, {} and so on up to {}",
                                               config.window, kMinWindow, 2 * kMinWindow, 4 * kMinWindow, kMaxWindow));
  }
}

// Checks the range of UDP ports. It has one port per lane and trainer.
void read_udp_port(const Section& root, NodeConfig& config) {
  const unsigned count = config.lanes * config.trainers;
  if (config.udp_port + count - 1 <= kMaxUdpPort) return;
  root.find("udp_port")
      ->fault(fmt::format("{} is the first of {} ports, one for each lane and trainer, allowed: 1 to {}",
                          config.udp_port, count, kMaxUdpPort + 1 - count));
}

void read_protection(const Section& root, NodeConfig& config) {
  const size_t faults = root.value().faults().count();
  const auto section = read_section(node_keys(), root, "auth", config);
  if (section && section->value().node().kind == YamlNode::Kind::kMap) {
    if (const auto file = section->need("key_file")) config.key_file = file->text(kLongestPath).value_or("");
  }
  const auto security = root.find("security");
  config.security_chosen = security || section;
  if (!config.key_file.empty()) config.security = Security::kAuthenticated;
  if (security) {
    if (const auto choice = security->choice(kSecurityWords)) config.security = static_cast<Security>(*choice);
  }
  if (root.value().faults().count() == faults && config.key_file.empty() != (config.security == Security::kNone)) {
    security->fault(config.key_file.empty() ? "needs a key, needed: auth: {key_file: FILE}"
                                            : "is none, but there is a key, allowed: authenticated, encrypted, "
                                              "encrypted-128; or no auth.key_file");
  }
  read_user(root, config.user);
}

// Reads the paths of two sockets, the trainers' and the administrator's.
void read_sockets(const Section& root, NodeConfig& config) {
  const size_t faults = root.value().faults().count();
  config.socket = fmt::format("/run/gradlane/node{}.sock", config.rank);
  const auto socket = root.find("socket");
  if (socket) config.socket = socket->text(kLongestSocket).value_or(config.socket);
  if (const auto admin = root.find("admin")) {
    config.admin = admin->text(kLongestSocket).value_or("");
    if (config.admin == config.socket) admin->fault("this is the path of `socket`, allowed: a different one");
    return;
  }
  static constexpr std::string_view kSuffix = ".sock";
  config.admin = config.socket;
  if (config.admin.ends_with(kSuffix)) config.admin.resize(config.admin.size() - kSuffix.size());
  config.admin += ".admin";
  if (config.admin.size() <= kLongestSocket || root.value().faults().count() != faults) return;
  socket->fault(fmt::format(
      "the path of `admin` would be this path with .admin at its end, of {} bytes, allowed: up to {}; set `admin`",
      config.admin.size(), kLongestSocket));
}

// Reads `metrics`. A path is that of a Unix socket. "node:9400" stands for this node's address, so that one file can
// serve all nodes.
void read_metrics(const Section& root, NodeConfig& config, bool identity) {
  const auto value = root.find("metrics");
  if (!value) return;
  static constexpr std::string_view kNode = "node:";
  const std::string& text = value->node().text;
  if (text.starts_with('/')) {
    config.metrics_socket = value->text(kLongestSocket).value_or("");
    if (config.metrics_socket == config.socket || config.metrics_socket == config.admin) {
      value->fault("this is the path of `socket` or `admin`, allowed: a different one");
    }
    return;
  }
  const auto port =
      text.starts_with(kNode) ? parse_decimal(std::string_view(text).substr(kNode.size()), 1, 65535) : std::nullopt;
  if (value->node().kind != YamlNode::Kind::kScalar || !port) {
    config.metrics = value->ip_port();
  } else if (!of_sockets(config)) {
    value->fault(
        fmt::format("{} is only for ports of kind udp, because the kernel has no address of others, allowed: "
                    "ADDRESS:PORT, as in 0.0.0.0:9400",
                    quote_text(text)));
  } else if (identity) {
    config.metrics = IpPort{address_of(config.nodes[config.rank]), static_cast<uint16_t>(*port)};
  }
}

}  // namespace

NodeConfig parse_config(std::string_view text, const std::string& name, const NodeChoice& choice) {
  return read_config({parse_yaml(text, name), name, {}}, choice);
}

NodeConfig read_config(const ConfigTree& source, const NodeChoice& choice) {
  const YamlNode& tree = source.root;
  ConfigFaults faults(source.name, source.words);
  NodeConfig config;
  config.file = source.name;
  if (tree.kind == YamlNode::Kind::kNull) {
    faults.add(tree.place, "", "the file sets nothing, needed: rank and nodes");
    faults.throw_first();
  }
  if (const YamlNode* const mode = accelerator_mode(tree)) {
    faults.add(mode->place, "mode", "this is an accelerator's file, but a node's file is needed here, allowed: node");
    faults.throw_first();
  }
  const Section root(Value(tree, "", faults), names_in(node_keys(), ""), kElsewhere);
  if (const auto mode = root.find("mode")) (void)mode->choice(kModeWords);
  if (tree.kind != YamlNode::Kind::kMap) faults.throw_first();
  std::vector<NodePlace> places;
  read_keys(node_keys(), "", root, config);
  const bool identity = read_identity(root, config, choice, places);
  read_strategies(root, config, identity);
  read_choices(root, config, identity ? world_of(config) : 0);
  const TosClass classes[] = {
      {"compressed", config.tos_compressed}, {"raw", config.tos_raw}, {"control", config.tos_control}};
  read_tos(root, classes, 0);
  read_workers(root, config);
  read_udp_port(root, config);
  if (identity) read_addresses(places, config);
  read_ports(root, config, identity);
  check_mtu(root, config);
  (void)read_section(node_keys(), root, "memory", config);
  read_protection(root, config);
  read_exchange(root, config);
  (void)read_section(node_keys(), root, "timeouts", config);
  (void)read_section(node_keys(), root, "faults", config);
  read_sockets(root, config);
  read_metrics(root, config, identity);
  read_log(root, config.log, config.log_file);
  faults.throw_first();
  return config;
}

NodeChoice this_machine(std::optional<unsigned> rank) {
  NodeChoice choice{.rank = rank, .hosts = {}};
  std::array<char, kLongestHost + 1> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) {
    choice.hosts.push_back(lower(name.data()));
    if (const size_t dot = choice.hosts.front().find('.'); dot != std::string::npos) {
      choice.hosts.push_back(choice.hosts.front().substr(0, dot));
    }
  }
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return choice;
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    const bool ipv4 = it->ifa_addr != nullptr && it->ifa_addr->sa_family == AF_INET;
    if (!ipv4 || (it->ifa_flags & IFF_LOOPBACK) != 0) continue;
    sockaddr_in address{};
    std::memcpy(&address, it->ifa_addr, sizeof(address));
    choice.hosts.push_back(ip_text(ntohl(address.sin_addr.s_addr)));
  }
  freeifaddrs(all);
  return choice;
}

}  // namespace gradlane
