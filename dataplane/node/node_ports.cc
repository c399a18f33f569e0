// node_ports.cc - a node's ports, and the routes through them to its neighbours (control thread only)
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "config/strategies.h"
#include "dataplane/device/ethdev_port.h"
#include "dataplane/node/node.h"
#include "dataplane/udp/udp_port.h"

namespace gradlane {

void Node::make_ports(RingLinks& links, unsigned index) {
  const std::vector<rte_mempool*> mempools(config_.lanes, pools_.front()->mempool());
  for (const PortConfig& port : config_.ports) {
    const std::string unique = "n" + std::to_string(index) + "p" + std::to_string(ports_.size());
    NodePort& it = ports_.emplace_back();
    if (port.kind == PortConfig::Kind::kUdp) {
      it.port = std::make_unique<UdpPort>(port, config_, mempools.front());
    } else {
      it.port = std::make_unique<EthdevPort>(port, config_, mempools, links, unique);
    }
    it.claim = std::make_unique<AddressClaim>(it.port->local_link() || it.port->of_sockets());
  }
}

// Makes a neighbour for each node that a lane has packets for: the one before in the ring, the next one, then the
// others.
void Node::make_neighbours() {
  const auto count = static_cast<unsigned>(config_.nodes.size());
  std::vector<bool> linked(count);
  for (const auto& lane : lanes_) {
    for (const unsigned rank : lane->exchange().neighbours()) linked[rank / ranks_per_node(config_)] = true;
  }
  linked[config_.rank] = false;
  std::vector<unsigned> nodes = {(config_.rank + count - 1) % count, (config_.rank + 1) % count};
  for (unsigned node = 0; node < count; ++node) nodes.push_back(node);
  for (const unsigned node : nodes) {
    if (!linked[node]) continue;
    linked[node] = false;
    auto& it = neighbours_.emplace_back(std::make_unique<Neighbour>());
    it->node = node;
    it->ip = config_.nodes[node].ip;
    it->keys = keys_of(node);
    it->configured = config_.nodes[node].mac.has_value();
    if (it->configured) it->mac = pack_mac(*config_.nodes[node].mac);
  }
}

void Node::connect_ports() {
  const unsigned ranks = ranks_per_node(config_);
  for (NodePort& own : ports_) {
    std::vector<Neighbour*> reached;
    const auto& nodes = own.port->nodes();
    for (const auto& it : neighbours_) {
      if (nodes.empty() || std::ranges::find(nodes, it->node) != nodes.end()) reached.push_back(it.get());
    }
    for (Neighbour* const it : reached) {
      if (!own.port->of_sockets()) continue;
      it->configured = true;  // the kernel finds the route
      it->mac = pack_mac(mac_of(it->ip));
    }
    PortQueue::Setup setup;
    setup.claim = own.claim.get();
    setup.ranks_per_node = ranks;
    setup.peer_timeout = config_.peer_timeout;
    setup.local = {.mac = own.port->mac(),
                   .ip = config_.nodes[config_.rank].ip,
                   .udp_port = config_.udp_port,
                   .udp_ports = static_cast<uint16_t>(config_.lanes * ranks)};
    for (const NodeAddress& node : config_.nodes) setup.addresses.push_back(node.ip);
    for (const NodePort& each : ports_) setup.macs.push_back(each.port->mac());
    setup.identity = probe_identity(config_);
    setup.faults = config_.faults;
    setup.security = config_.security;
    setup.keys = keys_.get();
    for (unsigned i = 0; i < own.port->queues(); ++i) {
      setup.first = i == 0;
      setup.fault_stream =
          (uint64_t{config_.rank} * kMaxPorts + static_cast<uint64_t>(&own - ports_.data())) * kMaxLanes + i;
      own.queues.push_back(std::make_unique<PortQueue>(*own.port, i, *pools_.front(), classifier_, setup, reached));
      worker_of(i).add(*own.queues.back(), own.port->fds(i));
    }
    // A packet that arrives at any queue goes to the lane it is for, if this worker has that lane.
    for (unsigned number = 0; number < config_.lanes; ++number) {
      for (unsigned local = 0; local < ranks; ++local) {
        for (unsigned i = 0; i < own.queues.size(); ++i) {
          if (&worker_of(i) != &worker_of(number)) continue;
          own.queues[i]->connect(number * ranks + local, lane(number, local));
        }
      }
    }
  }
}

PortQueue& Node::queue_to(unsigned node, unsigned number) {
  for (NodePort& it : ports_) {
    const auto& nodes = it.port->nodes();
    const bool reaches = nodes.empty() || std::ranges::find(nodes, node) != nodes.end();
    if (reaches) return *it.queues[number % it.queues.size()];
  }
  throw SetupError(fmt::format("no port reaches node {}: configure one for {}", node, links_text(config_, node)));
}

void Node::connect_lane(unsigned number, unsigned local) {
  const unsigned ranks = ranks_per_node(config_);
  Lane& own = lane(number, local);
  for (const unsigned rank : own.exchange().neighbours()) {
    const unsigned node = rank / ranks;
    if (node == config_.rank) {
      own.connect(rank, lane(number, rank % ranks));
      continue;
    }
    PortQueue& queue = queue_to(node, number);
    Flow flow;
    flow.source_mac = queue.port().mac();
    flow.source_ip = config_.nodes[config_.rank].ip;
    flow.destination_ip = config_.nodes[node].ip;
    flow.source_port = static_cast<uint16_t>(config_.udp_port + number * ranks + local);
    flow.destination_port = static_cast<uint16_t>(config_.udp_port + number * ranks + rank % ranks);
    std::unique_ptr<SecureLink> secure;
    if (const KeyRing* const keys = keys_of(node); keys != nullptr) {
      secure = std::make_unique<SecureLink>(
          *keys, config_.security,
          LinkEnds{flow.source_ip, flow.destination_ip, flow.source_port, flow.destination_port});
    }
    own.connect(rank, queue, *neighbour(node), flow, std::move(secure));
  }
}

}  // namespace gradlane
