// network.cc - a switch with a cable to each host, which forwards frames at times that the test passes in
#include "tests/stack/network.h"

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "dataplane/frame/internet.h"
#include "tests/dataplane/test_eal.h"

namespace gradlane::test {
namespace {

constexpr size_t kBuffers = 16383;
constexpr size_t kMtu = 1600;     // bytes for which packet buffers have space; nodes use 1500
constexpr unsigned kRing = 4096;  // frames; longer than the number that a node has in flight
constexpr size_t kMacBytes = 6;
constexpr size_t kUdpPort = 36;   // offset of the destination port in a frame
constexpr size_t kProtocol = 23;  // offset of IPv4's protocol field in a frame

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "network: %s\n", what);
  std::abort();
}

rte_ring* new_ring() {
  rte_ring* const ring = rte_ring_create(("cable" + std::to_string(next_index())).c_str(), kRing, SOCKET_ID_ANY,
                                         RING_F_SP_ENQ | RING_F_SC_DEQ);
  if (ring == nullptr) broken("no memory for a ring");
  return ring;
}

void empty(rte_ring* ring) {
  for (void* packet = nullptr; rte_ring_dequeue(ring, &packet) == 0;) {
    rte_pktmbuf_free(static_cast<rte_mbuf*>(packet));
  }
}

uint64_t mac_at(std::span<const uint8_t> frame, size_t at) {
  uint64_t mac = 0;
  std::memcpy(&mac, frame.data() + at, kMacBytes);
  return mac;
}

bool is_udp(std::span<const uint8_t> frame) {
  return frame.size() > kUdpPort + 1 && frame[12] == 0x08 && frame[13] == 0 && frame[kProtocol] == 17;
}

PacketPool pool_of_frames() {
  start_eal_once();
  // Nodes probe devices that exist already (all but PCI devices). EAL logs an error for that, which callers ignore.
  rte_log_set_level_pattern("lib.eal", RTE_LOG_CRIT);
  return PacketPool("network" + std::to_string(next_index()), kBuffers, kMtu);
}

}  // namespace

Network::Network(unsigned hosts, uint16_t udp_port, uint64_t seed)
    : udp_port_(udp_port),
      pool_(pool_of_frames()),
      hosts_(hosts),
      groups_(hosts),
      cut_(size_t{hosts} * hosts),
      dice_(Random(seed)) {}

Network::~Network() {
  for (unsigned i = 0; i < hosts_.size(); ++i) unplug(i);
}

std::string Network::plug(unsigned host, unsigned queues, unsigned ranks_per_node) {
  Host& it = hosts_[host];
  if (!it.device.empty()) broken("a host has one device");
  const std::string name = "host" + std::to_string(next_index());
  for (unsigned i = 0; i < queues; ++i) {
    it.rx.push_back(new_ring());
    it.tx.push_back(new_ring());
  }
  if (rte_eth_from_rings(name.c_str(), it.rx.data(), queues, it.tx.data(), queues, kAnySocket) < 0) broken("no device");
  it.device = "net_ring_" + name;
  it.ranks_per_node = ranks_per_node;
  return it.device;
}

void Network::unplug(unsigned host) {
  Host& it = hosts_[host];
  std::priority_queue<ScheduledFrame> left;
  for (; !due_.empty(); due_.pop()) {
    if (due_.top().to == host || due_.top().from == host) {
      rte_pktmbuf_free(due_.top().mbuf);
    } else {
      left.push(due_.top());
    }
  }
  due_ = std::move(left);
  for (const auto& rings : {it.rx, it.tx}) {
    for (rte_ring* const ring : rings) {
      empty(ring);
      rte_ring_free(ring);
    }
  }
  for (const auto& [queue, mbuf] : it.backlog) rte_pktmbuf_free(mbuf);
  it.backlog.clear();
  it.rx.clear();
  it.tx.clear();
  it.device.clear();
  it.frames.clear();
}

bool Network::has_frames(unsigned host) const {
  return std::ranges::any_of(hosts_[host].rx, [](const rte_ring* ring) { return rte_ring_empty(ring) == 0; });
}

void Network::set_cable(unsigned host, bool up, bool noticed) {
  hosts_[host].up = up;
  hosts_[host].noticed = noticed;
  apply_link_state(host);
}

void Network::apply_link_state(unsigned host) const {
  const Host& it = hosts_[host];
  uint16_t id = 0;
  if (!it.noticed || rte_eth_dev_get_port_by_name(it.device.c_str(), &id) != 0) return;
  it.up ? rte_eth_dev_set_link_up(id) : rte_eth_dev_set_link_down(id);
}

size_t Network::free_buffers() const { return rte_mempool_avail_count(pool_.mempool()); }

// ---- Frames on their way

bool Network::step(Nanos now) {
  bool moved = false;
  for (auto& [host, frame] : std::exchange(sent_, {})) {
    forward(host, frame, now);
    moved = true;
  }
  for (unsigned host = 0; host < hosts_.size(); ++host) {
    for (rte_ring* const ring : hosts_[host].tx) {
      for (void* packet = nullptr; rte_ring_dequeue(ring, &packet) == 0;) {
        auto* const mbuf = static_cast<rte_mbuf*>(packet);
        if (mbuf->nb_segs != 1) broken("a frame in two buffers");
        forward(host, {rte_pktmbuf_mtod(mbuf, const uint8_t*), mbuf->data_len}, now);
        rte_pktmbuf_free(mbuf);
        moved = true;
      }
    }
  }
  for (Host& host : hosts_) hand_out_backlog(host);
  for (; !due_.empty() && due_.top().at <= now; due_.pop()) {
    hand_out(due_.top());
    moved = true;
  }
  return moved;
}

void Network::forward(unsigned from, std::span<const uint8_t> frame, Nanos now) {
  if (frame.size() < 2 * kMacBytes || !hosts_[from].up) return;
  learnt_[mac_at(frame, kMacBytes)] = from;
  const auto known = learnt_.find(mac_at(frame, 0));
  for (unsigned to = 0; to < hosts_.size(); ++to) {
    if (to != from && (known == learnt_.end() || known->second == to)) carry(from, to, frame, now);
  }
}

rte_mbuf* Network::copy(std::span<const uint8_t> frame) {
  rte_mbuf* const mbuf = pool_.allocate();
  if (mbuf == nullptr) broken("no buffer for a frame");
  std::memcpy(rte_pktmbuf_append(mbuf, static_cast<uint16_t>(frame.size())), frame.data(), frame.size());
  return mbuf;
}

Nanos Network::busy_until(Nanos& cable, size_t bytes, Nanos now) const {
  cable = std::max(cable, now) + (rate_ == 0 ? 0 : bytes * 8 * kSecond / rate_);
  return cable;
}

void Network::carry(unsigned from, unsigned to, std::span<const uint8_t> frame, Nanos now) {
  Host& receiver = hosts_[to];
  if (!receiver.up || groups_[from] != groups_[to] || cut_[from * hosts_.size() + to]) return;
  const FaultDice::Fate fate = dice_.decide(faults_);
  if (fate.drop) return;
  const Nanos sent = busy_until(hosts_[from].tx_busy_until, frame.size(), now);
  const Nanos heard = busy_until(receiver.rx_busy_until, frame.size(), sent);
  const Nanos late = fate.reorder ? fate.late % (10 * kLatency) : fate.delay ? fate.late % (100 * kLatency) : 0;
  const unsigned copies = fate.duplicate ? 2 : 1;
  for (unsigned i = 0; i < copies; ++i) {
    rte_mbuf* const mbuf = copy(frame);
    auto* const data = rte_pktmbuf_mtod(mbuf, uint8_t*);
    if (filter_ && !filter_(from, to, {data, frame.size()})) {
      rte_pktmbuf_free(mbuf);
      continue;
    }
    if (fate.corrupt) data[fate.where / 8 % frame.size()] ^= static_cast<uint8_t>(1U << fate.where % 8);
    due_.push({heard + kLatency + late, next_number_++, from, to, mbuf});
  }
}

void Network::hand_out(const ScheduledFrame& due) {
  Host& host = hosts_[due.to];
  const std::span<const uint8_t> frame(rte_pktmbuf_mtod(due.mbuf, const uint8_t*), due.mbuf->data_len);
  ++carried_;
  if (due.to == recorded_host_ && record_left_ != 0) {
    --record_left_;
    recorded_.emplace_back(frame.begin(), frame.end());
  }
  size_t queue = 0;
  if (is_udp(frame) && !host.rx.empty()) {
    const unsigned port = unsigned{frame[kUdpPort]} << 8 | frame[kUdpPort + 1];
    queue = (port - udp_port_) / host.ranks_per_node % host.rx.size();
  }
  if (host.rx.empty() && host.listens) host.frames.emplace_back(frame.begin(), frame.end());
  if (host.rx.empty()) return rte_pktmbuf_free(due.mbuf);
  host.backlog.emplace_back(queue, due.mbuf);
  hand_out_backlog(host);
}

void Network::hand_out_backlog(Host& host) {
  for (; !host.backlog.empty(); host.backlog.pop_front()) {
    const auto [queue, mbuf] = host.backlog.front();
    if (rte_ring_enqueue(host.rx[queue], mbuf) != 0) return;
  }
}

// ---- The test's frames

void Network::send(unsigned host, const Bytes& frame) { sent_.emplace_back(host, frame); }

std::optional<Bytes> Network::take(unsigned host) {
  std::deque<Bytes>& frames = hosts_[host].frames;
  if (frames.empty()) return std::nullopt;
  Bytes frame = std::move(frames.front());
  frames.pop_front();
  return frame;
}

void Network::record(unsigned host, size_t most) {
  recorded_host_ = host;
  record_left_ = most;
  recorded_.clear();
}

}  // namespace gradlane::test
