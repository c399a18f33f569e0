// node_table.h - translation between addresses of sockets and addresses in frames (worker threads; no DPDK)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "config/config.h"
#include "dataplane/udp/superpacket_socket.h"

namespace gradlane {

// The address and port of a node in frames, in host byte order.
struct FrameEndpoint {
  uint32_t ip = 0;
  uint16_t port = 0;
  bool operator==(const FrameEndpoint&) const = default;
};

// Translates addresses. The sockets of a node have one address and consecutive ports; each node may have another first
// port. In frames each node has its own IPv4 address, and all nodes have the same ports.
class NodeTable {
 public:
  // Makes a table without nodes: frames have the addresses of the sockets.
  NodeTable() = default;
  explicit NodeTable(const NodeConfig& config);

  [[nodiscard]] Endpoint endpoint_of(FrameEndpoint in_frames) const noexcept;
  // Returns the address in frames. An endpoint of no node keeps its address and gets port 0. If that address is IPv6,
  // or a node has it in frames, the result has kStrangerIp instead.
  [[nodiscard]] FrameEndpoint in_frames(const Endpoint& endpoint) const noexcept;

 private:
  struct Node {
    uint32_t ip = 0;
    Endpoint first;
  };

  uint16_t udp_port_ = 0;
  uint16_t udp_ports_ = 0;
  std::vector<Node> by_ip_;
  std::vector<Node> by_endpoint_;
};

}  // namespace gradlane
