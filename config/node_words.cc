// node_words.cc - a node's configuration from the command line, without a file (set-up only)
#include "config/node_words.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/read_file.h"
#include "base/socket_folders.h"
#include "config/common_sections.h"
#include "config/faults.h"
#include "config/set_option.h"

namespace gradlane {
namespace {

constexpr size_t kMostMtu = 1500;  // largest MTU that is chosen for a network if none is set; most pass it
constexpr const char* kSlurmNames[] = {"SLURM_JOB_NODELIST", "SLURM_NODELIST"};

// ---- Hosts

std::string read_host_file(const std::string& path, const std::string& where) {
  FileText file = read_file(path, kMaxConfigBytes + 1);  // one byte more, to see that it is too long
  if (!file.fault.empty()) refuse_word(where, fmt::format("cannot read {}: {}", path, file.fault));
  if (file.text.size() > kMaxConfigBytes) refuse_word(where, fmt::format("{} is too long for a list of hosts", path));
  return std::move(file.text);
}

std::vector<Host> slurm_hosts(const Environment& environment, const std::string& where) {
  for (const char* const name : kSlurmNames) {
    if (const auto list = environment(name)) return parse_slurm_hosts(*list, fmt::format("{}: {}", where, name));
  }
  refuse_word(where,
              "SLURM_JOB_NODELIST is not set: this is not in a SLURM job, or the job's environment was not passed on");
}

// Refuses "@mpi" and "@mpi:HOST": mpirun does not tell its processes the hosts. Until 0.2, "@mpi:HOST" let nodes meet
// at the host of rank 0.
[[noreturn]] void refuse_mpi(const Environment& environment, const std::string& where) {
  const bool slurm = environment(kSlurmNames[0]).has_value();
  refuse_word(where, fmt::format("mpirun does not tell its processes the hosts: name them as for mpirun, --nodes "
                                 "HOST,HOST,... or --nodes @HOSTFILE{}",
                                 slurm ? ", or because this is a SLURM job, --nodes @slurm" : ""));
}

std::vector<Host> hosts_of(const NodeWords& words, const HostQueries& queries) {
  const std::string& nodes = words.nodes;
  if (nodes.empty()) refuse_word("--nodes", "no hosts, allowed: HOST,HOST,..., @FILE, @slurm");
  if (nodes[0] != '@') return parse_hosts(nodes, "--nodes");
  const std::string where = "--nodes " + nodes;
  if (nodes == "@slurm") return slurm_hosts(queries.environment, where);
  if (nodes == "@mpi" || nodes.starts_with("@mpi:")) refuse_mpi(queries.environment, where);
  const std::string path = nodes.substr(1);
  if (path.empty()) refuse_word(where, "no file name after @, allowed: @FILE, @slurm");
  return parse_host_file(read_host_file(path, where), path);
}

// ---- Ports

// Returns whether this looks like "0000:03:00.0" or "03:00.0". Arguments may follow it.
bool looks_like_pci(std::string_view text) {
  text = text.substr(0, text.find(','));
  return text.find(':') != std::string_view::npos && text.find('.') != std::string_view::npos &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; });
}

YamlNode port_of(Place place, const std::string& key, const std::string& text) {
  YamlNode port = map_at(place);
  add_key(port, place, key, scalar_at(place, text));
  return port;
}

// Returns the devargs for AF_PACKET. A frame must fit into a buffer of the device, and divide its blocks: devices.cc
// says why.
std::string af_packet(const std::string& interface, unsigned number, size_t mtu) {
  const std::string device = fmt::format("net_af_packet{},iface={},qdisc_bypass=0", number, interface);
  return mtu <= kMostMtu ? device : device + ",framesz=9216,blocksz=36864";
}

// Makes a port from the text of --port. `mtu` is 0 if it is not known.
YamlNode port_node(const std::string& spec, Place place, const std::string& word, unsigned number, size_t mtu) {
  const auto behind = [&](std::string_view kind) -> std::optional<std::string> {
    if (!spec.starts_with(kind)) return std::nullopt;
    std::string_view rest = std::string_view(spec).substr(kind.size());
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    return std::string(rest);
  };
  if (spec.empty())
    refuse_word(word, "no port, allowed: udp, af_packet:INTERFACE, af_xdp:INTERFACE, DEVICE, a PCI address");
  if (spec == "udp") return port_of(place, "udp", "auto");
  if (const auto name = behind("af_packet:")) {
    if (*name == "lo") {
      refuse_word(word,
                  "lo is the loopback interface, which is no Ethernet, allowed: an Ethernet interface; for nodes on "
                  "one machine leave --port out: they use UDP sockets");
    }
    return port_of(place, "device", af_packet(*name, number, mtu));
  }
  if (const auto name = behind("af_xdp:")) {
    return port_of(place, "device", fmt::format("net_af_xdp{},iface={},start_queue=0,queue_count=1", number, *name));
  }
  for (const std::string key : {"device", "pci", "ring", "udp"}) {
    if (const auto text = behind(key + ":")) return port_of(place, key, *text);
  }
  if (spec[0] == '{') return yaml_at(spec, word, place);
  return port_of(place, looks_like_pci(spec) ? "pci" : "device", spec);
}

void add_ports(ConfigTree& tree, const std::vector<std::string>& specs, size_t mtu) {
  YamlNode list;
  list.kind = YamlNode::Kind::kList;
  for (const std::string& spec : specs) {
    const std::string word = "--port " + spec;
    const Place place = add_word(tree, word);
    list.place = list.items.empty() ? place : list.place;
    list.items.push_back(port_node(spec, place, word, static_cast<unsigned>(list.items.size()), mtu));
  }
  const Place place = list.place;
  add_key(tree.root, place, "ports", std::move(list));
}

// ---- Nodes

void add_nodes(ConfigTree& tree, Place place, const std::vector<FoundHost>& hosts, const std::vector<IpAddress>& ips) {
  YamlNode list;
  list.kind = YamlNode::Kind::kList;
  list.place = place;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const Place at = add_word(tree, "--nodes " + hosts[i].host.name);
    YamlNode node = map_at(at);
    add_key(node, at, "rank", scalar_at(at, fmt::format("{}", i)));
    add_key(node, at, "ip", scalar_at(at, ip_text(ips[i])));
    if (hosts[i].host.port != 0) add_key(node, at, "udp_port", scalar_at(at, fmt::format("{}", hosts[i].host.port)));
    list.items.push_back(std::move(node));
  }
  add_key(tree.root, place, "nodes", std::move(list));
}

// Returns the whole number that the tree has at that key; 0 if there is none.
uint64_t number_at(const ConfigTree& tree, const std::string& key) {
  const YamlNode* const node = find_key(tree.root, key);
  return node != nullptr && node->kind == YamlNode::Kind::kScalar ? parse_whole(node->text).value_or(0) : 0;
}

bool has(const std::vector<LocalIp>& here, const IpAddress& ip) {
  return std::ranges::find(here, ip, &LocalIp::ip) != here.end();
}

// Returns the MTU for packets that stay in this machine: that of its loopback interface, or less.
size_t loopback_mtu(const std::vector<LocalIp>& here) {
  size_t most = kMaxIpMtu;
  for (const LocalIp& it : here) {
    if (is_loopback(it.ip)) most = std::min(most, it.mtu);
  }
  return most;
}

// Returns the MTU of the interface with this address; 0 if this machine does not have the address.
size_t mtu_at(const IpAddress& ip, const std::vector<LocalIp>& here) {
  const auto found = std::ranges::find(here, ip, &LocalIp::ip);
  return found == here.end() ? 0 : std::min(found->mtu, kMostMtu);
}

// Returns the folder for sockets of this user. Returns nothing if that is root's folder, which is the default.
std::optional<std::string> own_folder(const HostQueries& queries) {
  if (queries.user == 0) return std::nullopt;
  const std::vector<std::string> folders =
      socket_folders(queries.user, queries.environment("XDG_RUNTIME_DIR").value_or(""));
  for (const std::string& it : folders) {
    if (it == folders.back() || queries.can_hold_sockets(it)) {
      return it == folders.front() ? std::nullopt : std::optional(it);
    }
  }
  return std::nullopt;
}

}  // namespace

WordsTree tree_of(const NodeWords& words, const HostQueries& queries) {
  ConfigTree settings_alone;  // reports faults of the settings before names are looked up
  settings_alone.root = map_at(add_word(settings_alone, "--set"));
  apply_settings(settings_alone, words.settings);
  const std::vector<FoundHost> hosts = queries.look_up(hosts_of(words, queries));
  const std::vector<IpAddress> ips = choose_ips(hosts, "--nodes");
  const std::vector<LocalIp> here = queries.local_ips();
  WordsTree found;
  ConfigTree& tree = found.tree;
  tree.name = "--nodes";
  const Place place = add_word(tree, "--nodes");
  tree.root = map_at(place);
  add_nodes(tree, place, hosts, ips);
  apply_settings(tree, words.settings);

  uint64_t rank = words.rank.value_or(0);
  if (!words.rank && find_key(tree.root, "rank") != nullptr) {
    rank = number_at(tree, "rank");
  } else if (!words.rank) {
    const RankHere given = rank_here(hosts, ips, here, queries.environment, "--nodes");
    rank = given.rank;
    found.launcher = given.launcher;
    add_key(tree.root, place, "rank", scalar_at(place, fmt::format("{}", rank)));
  }
  // Packets between nodes of one machine may be long, but only sockets have buffers for them without being asked.
  const bool on_loopback = hosts.size() > 1 && words.ports.empty() && find_key(tree.root, "ports") == nullptr &&
                           std::ranges::all_of(ips, is_loopback);
  if (const size_t mtu = on_loopback         ? loopback_mtu(here)
                         : rank < ips.size() ? mtu_at(ips[rank], here)
                                             : 0;
      mtu != 0 && find_key(tree.root, "mtu") == nullptr) {
    add_key(tree.root, place, "mtu", scalar_at(place, fmt::format("{}", mtu)));
  }
  if (find_key(tree.root, "ports") != nullptr) {
    if (!words.ports.empty()) refuse_word("--set ports", "--port sets them, too, allowed: one of the two");
  } else if (!words.ports.empty() || hosts.size() > 1) {
    // If a NAT translates this machine's address, the list has the translated one, to which no socket can be bound.
    const bool none_here = std::ranges::none_of(ips, [&](const auto& ip) { return is_loopback(ip) || has(here, ip); });
    const std::vector<std::string> sockets = {none_here ? "udp: any" : "udp: auto"};
    add_ports(tree, words.ports.empty() ? sockets : words.ports, number_at(tree, "mtu"));
  }
  if (find_key(tree.root, "socket") == nullptr) {
    if (const auto folder = own_folder(queries)) {
      add_key(tree.root, place, "socket", scalar_at(place, fmt::format("{}/node{}.sock", *folder, rank)));
    }
  }
  return found;
}

LoadedWords load_node_words(const NodeWords& words, const HostQueries& queries) {
  const WordsTree found = tree_of(words, queries);
  return {read_any_config(found.tree, NodeChoice{words.rank, {}}), found.launcher};
}

std::string ways_to_start(const Environment& environment) {
  const bool slurm = environment(kSlurmNames[0]).has_value();
  return fmt::format(
      "no nodes are given; start with one of these:\n"
      "  gradlaned --nodes 10.0.0.1,10.0.0.2   the same on every machine: addresses, names\n"
      "  gradlaned --nodes @hosts.txt          the same, a host in each line{}\n"
      "  gradlaned --config FILE               all settings of a file, docs/configuration.md",
      slurm ? "\n  gradlaned --nodes @slurm              the hosts of this job of SLURM" : "");
}

}  // namespace gradlane
