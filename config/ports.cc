// ports.cc - the section `ports` of a configuration file (set-up only)
#include "config/ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "config/addresses.h"
#include "config/common_sections.h"
#include "config/devices.h"
#include "config/strategies.h"

namespace gradlane {
namespace {

constexpr const char* kPortKeys[] = {"name", "device", "pci", "ring", "udp", "nodes", "mac"};
constexpr size_t kLongestPortName = 31;

class PortReader {
 public:
  PortReader(NodeConfig& config, bool checked) : config_(config), checked_(checked), owners_(config.nodes.size()) {}

  void read(const Value& value) {
    const Section section(value, kPortKeys);
    PortConfig port;
    port.name = fmt::format("e{}", number_);
    if (const auto name = section.find("name")) port.name = name->name(kLongestPortName).value_or(port.name);
    check_unique(names_, port.name, section.find("name").value_or(value), "name");
    read_device(section, port);
    if (const auto mac = section.find("mac")) {
      port.mac = mac->host_mac();
      if (port.kind == PortConfig::Kind::kUdp)
        mac->fault("sockets have no MAC address of their own, allowed: ports without mac");
    }
    if (checked_) read_nodes(section, port);
    config_.ports.push_back(port);
    ++number_;
  }

  [[nodiscard]] bool reaches(unsigned rank) const { return owners_[rank].has_value(); }

 private:
  void check_unique(std::map<std::string, size_t>& seen, const std::string& text, const Value& value,
                    const char* what) const {
    const auto [other, is_new] = seen.emplace(text, number_);
    if (!is_new)
      value.fault(fmt::format("the {} {} is already used by ports[{}], allowed: different ones", what, quote_text(text),
                              other->second));
  }

  void read_device(const Section& section, PortConfig& port) {
    using Kind = PortConfig::Kind;
    static constexpr DeviceKey kKinds[] = {
        {"device", Kind::kDevice}, {"pci", Kind::kPci}, {"ring", Kind::kRing}, {"udp", Kind::kUdp}};
    const auto chosen = read_port_device(section, kKinds, port);
    if (!chosen) return;
    if (const std::string fault = device_fault(port, config_.mtu, config_.lanes); !fault.empty()) {
      chosen->fault(fault);
    } else if (checked_ && port.kind != Kind::kUdp && needs_sockets(config_)) {
      chosen->fault(
          "nodes have IPv6 addresses, their own UDP ports, or one address in common, which needs sockets, allowed: "
          "udp: auto");
    } else {
      check_unique(devices_, device_key(port), *chosen, "device");
    }
  }

  void read_nodes(const Section& section, PortConfig& port) {
    const auto nodes = section.find("nodes");
    if (nodes) {
      const auto items = nodes->list("ranks");
      if (!items) return;
      if (items->empty())
        nodes->fault("the port reaches no node, allowed: ranks; or leave `nodes` out to reach all other nodes");
      for (const Value& item : *items) read_node(item, port);
    } else {
      for (unsigned rank = 0; rank < config_.nodes.size(); ++rank) {
        if (rank != config_.rank) reach(rank, section.value());
      }
    }
    const size_t reached = nodes ? port.nodes.size() : config_.nodes.size() - 1;
    if (port.kind == PortConfig::Kind::kRing && reached > 1) {
      nodes.value_or(section.value())
          .fault(fmt::format("an in-process link can reach one node, but reaches {} nodes here, allowed: nodes: [RANK]",
                             reached));
    }
  }

  void read_node(const Value& item, PortConfig& port) {
    const auto rank = item.whole(0, config_.nodes.size() - 1);
    if (!rank) return;
    if (*rank == config_.rank) {
      item.fault(fmt::format("{} is this node itself, allowed: ranks of other nodes", *rank));
      return;
    }
    port.nodes.push_back(static_cast<unsigned>(*rank));
    reach(port.nodes.back(), item);
  }

  void reach(unsigned rank, const Value& value) {
    if (owners_[rank]) {
      value.fault(fmt::format("node {} is reached through ports[{}] already, allowed: one port for each node", rank,
                              *owners_[rank]));
    } else {
      owners_[rank] = number_;
    }
  }

  NodeConfig& config_;
  bool checked_;
  size_t number_ = 0;                          // number of the port that is being read
  std::vector<std::optional<size_t>> owners_;  // by rank: number of the port that reaches the node
  std::map<std::string, size_t> names_;
  std::map<std::string, size_t> devices_;
};

}  // namespace

void read_ports(const Section& root, NodeConfig& config, bool checked) {
  const auto value = root.find("ports");
  const bool alone = config.nodes.size() == 1;
  if (!value) {
    if (checked && !alone)
      root.missing("ports", "is missing, allowed: at least one port, because there are other nodes");
    return;
  }
  const auto items = value->list("ports");
  if (!items) return;
  if (items->size() > kMaxPorts) {
    value->fault(fmt::format("{} ports, allowed: {}", items->size(), kMaxPorts));
    return;
  }
  PortReader reader(config, checked);
  const size_t faults = value->faults().count();
  for (const Value& item : *items) reader.read(item);
  if (!checked || alone || value->faults().count() != faults) return;
  for (const unsigned node : linked_nodes(config)) {
    if (reader.reaches(node)) continue;
    value->fault(fmt::format("no port reaches node {}, allowed: one for {}", node, links_text(config, node)));
  }
}

}  // namespace gradlane
