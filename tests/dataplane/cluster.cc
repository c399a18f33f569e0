// cluster.cc - nodes of a ring in one process, on in-process links; the test steps their workers in virtual time
#include "tests/dataplane/cluster.h"

#include <rte_dev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "config/strategies.h"
#include "tests/dataplane/counted.h"

namespace gradlane::test {
namespace {

constexpr size_t kPeerBuffers = 1023;
constexpr Nanos kStep = kMicrosecond;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "cluster: %s\n", what);
  std::abort();
}

}  // namespace

void take_out(const std::string& device) { rte_dev_event_callback_process(device.c_str(), RTE_DEV_EVENT_REMOVE); }

// ---- A node that the test plays

Peer::Peer(RingLinks& links, const std::string& link, unsigned lanes)
    : pool_("peer" + std::to_string(next_index()), kPeerBuffers, 1500), end_(links.attach(link, lanes)) {}

// Cluster has drained the link before, so no buffer of the pool is in use.
Peer::~Peer() = default;

rte_mbuf* Peer::buffer_with(const Bytes& frame) {
  rte_mbuf* const mbuf = pool_.allocate();
  if (mbuf == nullptr) fail("no buffer for a frame of the peer");
  std::memcpy(rte_pktmbuf_append(mbuf, static_cast<uint16_t>(frame.size())), frame.data(), frame.size());
  return mbuf;
}

void Peer::send(const Bytes& frame, unsigned queue) {
  if (rte_ring_enqueue(end_.tx.at(queue), buffer_with(frame)) != 0) fail("the link is full");
}

void Peer::send_in_two(const Bytes& frame) {
  const auto half = frame.begin() + static_cast<ptrdiff_t>(frame.size() / 2);
  rte_mbuf* const first = buffer_with({frame.begin(), half});
  if (rte_pktmbuf_chain(first, buffer_with({half, frame.end()})) != 0) fail("no chain");
  if (rte_ring_enqueue(end_.tx.at(0), first) != 0) fail("the link is full");
}

std::optional<Bytes> Peer::receive(unsigned queue) {
  void* packet = nullptr;
  if (rte_ring_dequeue(end_.rx.at(queue), &packet) != 0) return std::nullopt;
  auto* const mbuf = static_cast<rte_mbuf*>(packet);
  const uint8_t* const data = rte_pktmbuf_mtod(mbuf, const uint8_t*);
  const Bytes frame(data, data + mbuf->data_len);
  rte_pktmbuf_free(mbuf);
  return frame;
}

// ---- Buffers

Hoard::Hoard(const Node& node) {
  while (rte_mbuf* const mbuf = node.pools()[0]->allocate()) buffers_.push_back(mbuf);
}

void Hoard::give_back() {
  for (rte_mbuf* const mbuf : buffers_) rte_pktmbuf_free(mbuf);
  buffers_.clear();
}

// ---- The ring

NodeConfig Cluster::config_of(unsigned rank) const {
  const auto port = [rank](const std::string& name, const std::string& link, std::vector<unsigned> nodes) {
    PortConfig it;
    it.name = name;
    it.kind = PortConfig::Kind::kRing;
    it.device = "link" + link;
    it.nodes = std::move(nodes);
    it.mac = MacAddress{0x02, 0, 0, 0, 0, static_cast<uint8_t>(0x0a + rank)};
    return it;
  };
  NodeConfig config;
  config.rank = rank;
  for (unsigned i = 0; i < config_.nodes; ++i) config.nodes.push_back({.rank = i, .ip = 0x0a000001 + i, .mac = {}});
  const unsigned previous = (rank + config_.nodes - 1) % config_.nodes;
  config.strategies = find_strategies(config_.strategies);
  for (const unsigned other : linked_nodes(config)) {
    const std::string name = std::to_string(other);
    if (config_.nodes == 2) {
      config.ports.push_back(port("next", "0", {}));
    } else if (other == (rank + 1) % config_.nodes) {
      config.ports.insert(config.ports.begin(), port("next", std::to_string(rank), {other}));
    } else if (other == previous) {
      config.ports.push_back(port("previous", name, {other}));
    } else {
      config.ports.push_back(port("to" + name, link_between(rank, other), {other}));
    }
  }
  config.max_tensor = size_t{4} << 20;
  config.socket = folder_ / ("node" + std::to_string(rank) + ".sock");
  config.admin = folder_ / ("admin" + std::to_string(rank) + ".sock");
  if (config_.change) config_.change(config);
  return config;
}

std::string Cluster::link_between(unsigned rank, unsigned other) const {
  const auto [low, high] = std::minmax(rank, other);
  const std::string name = std::to_string(low) + "-" + std::to_string(high);
  const bool in_two = config_.cuttable == std::pair(low, high);
  return in_two ? name + (rank == low ? "a" : "b") : name;
}

// Moves packets between the two middle ends of the link that can be cut. Drops a packet if the link is cut, or if the
// other end is full.
void Cluster::carry() {
  for (size_t end = 0; end < middle_.size(); ++end) {
    for (size_t lane = 0; lane < middle_[end].rx.size(); ++lane) {
      for (void* packet = nullptr; rte_ring_dequeue(middle_[end].rx[lane], &packet) == 0;) {
        const bool lost = cut_ || rte_ring_enqueue(middle_[1 - end].tx[lane], packet) != 0;
        if (lost) rte_pktmbuf_free(static_cast<rte_mbuf*>(packet));
      }
    }
  }
}

Cluster::Cluster(const ClusterConfig& config) : config_(config), folder_(new_folder("cluster")) {
  start_eal_once();
  const unsigned made = config.played ? 1 : config.nodes;
  for (unsigned i = 0; i < made; ++i) nodes_.push_back(std::make_unique<Node>(config_of(i), links_, next_index()));
  if (config.played) peer_ = std::make_unique<Peer>(links_, "link0", lanes());
  if (config.cuttable) {
    const auto [low, high] = *config.cuttable;
    middle_.push_back(links_.attach("link" + link_between(low, high), lanes()));
    middle_.push_back(links_.attach("link" + link_between(high, low), lanes()));
  }
  stopped_.resize(nodes_.size());
  links_.check_all_have_two_ends();
  for (const auto& node : nodes_) node->maintain(now_);
}

Cluster::~Cluster() {
  for (const auto& node : nodes_) node->say_goodbye();
  links_.drain();
  nodes_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

bool Cluster::round(unsigned node) {
  bool moved = false;
  for (const auto& worker : nodes_[node]->workers()) {
    moved |= worker->receive(now_);
    moved |= worker->poll(now_);
  }
  return moved;
}

void Cluster::step() {
  for (unsigned i = 0; i < nodes_.size(); ++i) {
    if (!stopped_[i]) (void)round(i);
  }
  carry();
  now_ += kStep;
}

void Cluster::run_for(Nanos time) {
  for (const Nanos end = now_ + time; now_ < end;) step();
}

bool Cluster::run_until(const std::function<bool()>& is_so, Nanos time) {
  const Nanos end = now_ + time;
  while (!is_so()) {
    if (now_ >= end) return false;
    step();
  }
  return true;
}

bool Cluster::ready() const {
  bool all = true;
  for (const auto& node : nodes_) {
    node->for_each_lane([&all](const Lane& lane, unsigned) { all &= lane.exchange().ring_status().ready; });
  }
  return all;
}

uint64_t Cluster::counted(unsigned node, const std::string& name) const {
  uint64_t sum = 0;
  for (const NodePort& port : nodes_[node]->ports()) {
    for (const auto& queue : port.queues) sum += counted_by(*queue, name);
  }
  return sum;
}

uint64_t Cluster::counted(unsigned node, unsigned queue, const std::string& name) const {
  return counted_by(*nodes_[node]->ports()[0].queues.at(queue), name);
}

ControlChannel& Cluster::desk_of(unsigned node, unsigned trainer, unsigned lane) {
  return nodes_[node]->channel(lane, trainer % ranks_per_node(nodes_[node]->config()));
}

}  // namespace gradlane::test
