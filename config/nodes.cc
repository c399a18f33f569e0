// nodes.cc - the section `nodes` of a configuration file (set-up only)
#include "config/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "config/addresses.h"
#include "config/common_sections.h"

namespace gradlane {
namespace {

constexpr const char* kNodeKeys[] = {"rank", "ip", "udp_port", "mac", "host"};

class NodesReader {
 public:
  explicit NodesReader(NodeConfig& config) : config_(config) {}

  // Reads a node. With n nodes, n different ranks below n are all ranks from 0 to n - 1.
  void read_node(const Value& value, size_t count) {
    const Section section(value, kNodeKeys);
    if (value.node().kind != YamlNode::Kind::kMap) return;
    NodeAddress node;
    const auto ip = section.need("ip");
    const auto port = section.find("udp_port");
    if (const auto rank = section.need("rank")) {
      if (const auto number = rank->whole(0, count - 1)) {
        node.rank = static_cast<unsigned>(*number);
        check_unique(node.rank, *rank);
      }
    }
    if (ip) node.real = ip->host_ip();
    if (port) {
      if (const auto number = port->whole(1, kMaxUdpPort)) node.udp_port = static_cast<uint16_t>(*number);
    }
    if (const auto mac = section.find("mac")) node.mac = mac->host_mac();
    if (const auto host = section.find("host")) node.host = host->name(kLongestHost).value_or("");
    config_.nodes.push_back(node);
    if (ip) places_.push_back({node.rank, *ip, port});
  }

  [[nodiscard]] const std::vector<NodePlace>& places() const noexcept { return places_; }

 private:
  void check_unique(unsigned rank, const Value& value) {
    const auto [other, is_new] = ranks_.emplace(rank, value.path());
    if (!is_new)
      value.fault(fmt::format("rank {} is already used by {}, allowed: different ones", rank, other->second));
  }

  NodeConfig& config_;
  std::map<unsigned, std::string> ranks_;  // path of the node that has a rank
  std::vector<NodePlace> places_;
};

// Checks the UDP ports of a node. It has one socket for each lane and trainer.
void check_ports(const NodePlace& place, const NodeAddress& node, unsigned count) {
  if (!node.udp_port || *node.udp_port + count - 1 <= kMaxUdpPort) return;
  place.udp_port->fault(fmt::format("{} is the first of {} ports, one for each lane and trainer, allowed: 1 to {}",
                                    *node.udp_port, count, kMaxUdpPort + 1 - count));
}

// Checks the addresses of a node and of one `before` it in the file. Returns false after a fault.
bool check_pair(const NodePlace& place, const NodePlace& before, const NodeConfig& config) {
  const NodeAddress& node = config.nodes[place.rank];
  const NodeAddress& other = config.nodes[before.rank];
  const unsigned count = config.lanes * config.trainers;
  const unsigned port = udp_port_of(config, node);
  const unsigned other_port = udp_port_of(config, other);
  if (ipv4_of(*node.real).has_value() != ipv4_of(*other.real).has_value()) {
    place.ip.fault(
        fmt::format("{} is of another kind than {}, {}, allowed: only IPv4 addresses, or only IPv6 addresses",
                    ip_text(*node.real), before.ip.path(), ip_text(*other.real)));
  } else if (*node.real == *other.real && port < other_port + count && other_port < port + count) {
    place.ip.fault(fmt::format(
        "{} is already used by {}, allowed: different ones; or with sockets, a `udp_port` for each, {} apart",
        ip_text(*node.real), before.ip.path(), count));
  } else {
    return true;
  }
  return false;
}

}  // namespace

std::vector<NodePlace> read_nodes(const Value& value, NodeConfig& config) {
  const auto items = value.list("nodes {rank: ..., ip: ...}");
  if (!items) return {};
  if (items->empty() || items->size() > kMaxNodes) {
    value.fault(fmt::format("{} nodes, allowed: 1 to {}", items->size(), kMaxNodes));
    return {};
  }
  NodesReader reader(config);
  for (const Value& item : *items) reader.read_node(item, items->size());
  std::ranges::sort(config.nodes, {}, &NodeAddress::rank);
  return reader.places();
}

void read_addresses(const std::vector<NodePlace>& places, NodeConfig& config) {
  for (size_t i = 0; i < places.size(); ++i) {
    check_ports(places[i], config.nodes[places[i].rank], config.lanes * config.trainers);
    for (size_t before = 0; before < i && check_pair(places[i], places[before], config); ++before) continue;
  }
  // If all nodes have the same UDP port, frames have it, too.
  const std::optional<uint16_t> first = config.nodes.empty() ? std::nullopt : config.nodes.front().udp_port;
  if (first && std::ranges::all_of(config.nodes, [&](const NodeAddress& it) { return it.udp_port == first; })) {
    config.udp_port = *first;
    for (NodeAddress& node : config.nodes) node.udp_port.reset();
  }
  std::set<uint32_t> ips;
  for (const NodeAddress& node : config.nodes) {
    if (const auto ip = ipv4_of(*node.real)) ips.insert(*ip);
  }
  const bool made_up = ips.size() != config.nodes.size();
  for (NodeAddress& node : config.nodes) {
    node.ip = made_up ? kMadeUpIp + node.rank : *ipv4_of(*node.real);
    if (!made_up) node.real.reset();
  }
}

}  // namespace gradlane
