// node_table.h - addresses of sockets to those that frames have, and back (worker threads; no DPDK)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "config/config.h"
#include "dataplane/udp/superpacket_socket.h"

namespace gradlane {

// What frames have, in host byte order.
struct FrameEndpoint {
  uint32_t ip = 0;
  uint16_t port = 0;
  bool operator==(const FrameEndpoint&) const = default;
};

// Each node's sockets are at one address and at ports side by side, whose first may be another one on each node. In
// frames each node has an IPv4 address of its own, and all have the same ports.
class NodeTable {
 public:
  // Frames have what sockets have.
  NodeTable() = default;
  explicit NodeTable(const NodeConfig& config);

  [[nodiscard]] Endpoint endpoint_of(FrameEndpoint in_frames) const noexcept;
  // Of what is no node's: its own address, or kStrangerIp where that is IPv6 or a node's, with port 0.
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
