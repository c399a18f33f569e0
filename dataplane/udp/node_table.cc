// node_table.cc - translation between addresses of sockets and addresses in frames (worker threads; no DPDK)
#include "dataplane/udp/node_table.h"

#include <algorithm>

#include "config/addresses.h"

namespace gradlane {

NodeTable::NodeTable(const NodeConfig& config) {
  if (!needs_sockets(config)) return;
  udp_port_ = config.udp_port;
  udp_ports_ = static_cast<uint16_t>(config.lanes * ranks_per_node(config));
  for (const NodeAddress& node : config.nodes) {
    by_ip_.push_back({node.ip, {address_of(node), udp_port_of(config, node)}});
  }
  by_endpoint_ = by_ip_;
  std::ranges::sort(by_ip_, {}, &Node::ip);
  std::ranges::sort(by_endpoint_, {}, &Node::first);
}

Endpoint NodeTable::endpoint_of(FrameEndpoint in_frames) const noexcept {
  const auto node = std::ranges::lower_bound(by_ip_, in_frames.ip, {}, &Node::ip);
  if (node == by_ip_.end() || node->ip != in_frames.ip) return {ip_address(in_frames.ip), in_frames.port};
  return {node->first.ip, static_cast<uint16_t>(node->first.port + (in_frames.port - udp_port_))};
}

FrameEndpoint NodeTable::in_frames(const Endpoint& endpoint) const noexcept {
  const auto ipv4 = ipv4_of(endpoint.ip);
  if (by_endpoint_.empty()) return {ipv4.value_or(kStrangerIp), endpoint.port};
  const auto behind = std::ranges::upper_bound(by_endpoint_, endpoint, {}, &Node::first);
  if (behind != by_endpoint_.begin()) {
    const Node& node = *std::prev(behind);
    const unsigned index = unsigned{endpoint.port} - node.first.port;
    if (node.first.ip == endpoint.ip && index < udp_ports_) {
      return {node.ip, static_cast<uint16_t>(udp_port_ + index)};
    }
  }
  const bool strange = !ipv4 || std::ranges::binary_search(by_ip_, *ipv4, {}, &Node::ip);
  return {strange ? kStrangerIp : *ipv4, 0};
}

}  // namespace gradlane
