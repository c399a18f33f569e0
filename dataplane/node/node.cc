// node.cc - makes a node, starts it, and ends it (control thread only)
#include "dataplane/node/node.h"

#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "collectives/strategy/codec_needs.h"
#include "collectives/strategy/topology.h"
#include "config/addresses.h"
#include "config/choices.h"
#include "config/loader.h"
#include "config/strategies.h"
#include "dataplane/device/ethdev_port.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/node/ring_facts.h"
#include "dataplane/udp/segments.h"

namespace gradlane {
namespace {

constexpr size_t kThreadBuffers = 512;  // buffers in the cache of a thread
// packets per acknowledgement with sockets, which receive dozens of packets at a time
constexpr unsigned kSocketAckEvery = 16;
constexpr unsigned kSegmentsAckEvery = 4;        // the same if packets go in segments through a network
constexpr Nanos kFaultsInterval = 60 * kSecond;  // time between log lines that say that faults are injected

uint64_t random_bits() {
  uint64_t bits = 0;
  while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits) || bits == 0) {
  }
  return bits;
}

ExchangeConfig exchange_config(const NodeConfig& from, unsigned rank, uint64_t incarnation) {
  ExchangeConfig config;
  config.world = world_of(from);
  config.around = ip_udp_bytes(from) + (from.security == Security::kNone ? 0 : kEnvelopeBytes);
  config.segments = most_segments(from);
  config.mtu = from.mtu - config.around;
  if (config.segments > 1) config.mtu = config.segments * (config.mtu - kSegmentHeader);
  config.crc_of_data = from.security == Security::kNone;  // a tag covers all of a packet
  config.rank_table = rank_table_digest(from);
  config.settings = ring_settings(from);
  config.codec = from.codec;
  config.strategies = from.strategies;
  config.auto_scope = auto_scope(from);
  config.rank = rank;
  config.incarnation = incarnation;
  config.window = from.window;
  config.operations = from.operations;
  config.max_bytes = from.max_tensor;
  config.queue_target = from.queue_target;
  config.pad = of_sockets(from);
  if (config.pad)
    config.ack_every = config.segments == 1 || all_on_loopback(from) ? kSocketAckEvery : kSegmentsAckEvery;
  config.peer_timeout = from.peer_timeout;
  config.start_timeout = from.start_timeout;
  config.operation_timeout = from.operation_timeout;
  config.min_rto = from.min_rto;
  return config;
}

// Returns the number of buffers that one rank needs: for its exchange, and for packets from other ranks of this node.
size_t buffers_of_rank(const NodeConfig& config, unsigned rank) {
  const ExchangeConfig exchange = exchange_config(config, rank, 1);
  const unsigned ranks = ranks_per_node(config);
  const auto local = std::ranges::count_if(linked_ranks(exchange.strategies, exchange.world, rank),
                                           [&](unsigned it) { return it / ranks == config.rank; });
  return Exchange::buffers(exchange) + 2 * Lane::inbox_size(static_cast<size_t>(local));
}

// Returns the length of an IP packet that would hold the longest packet whole.
size_t buffer_mtu(const NodeConfig& config) {
  const ExchangeConfig exchange = exchange_config(config, config.rank, 1);
  return exchange.mtu + exchange.around;
}

size_t buffers_per_lane(const NodeConfig& config) {
  size_t buffers = kThreadBuffers;
  const unsigned ranks = ranks_per_node(config);
  for (unsigned local = 0; local < ranks; ++local) buffers += buffers_of_rank(config, config.rank * ranks + local);
  for (const PortConfig& port : config.ports) buffers += buffers_in(port);
  if (config.faults.any()) buffers += config.ports.size() * FaultInjector::kHeld;
  if (most_segments(config) > 1) buffers += ranks * kSegmentEntries;
  return buffers;
}

// Returns the NUMA node for packet buffers: the node of all ports' cards, or -1 (any) if these are on different nodes.
int buffers_node(const NodeConfig& config) {
  if (!config.hugepages || config.ports.empty()) return -1;
  const int node = EthdevPort::numa_node_of(config.ports.front());
  const bool agree =
      std::ranges::all_of(config.ports, [node](const auto& it) { return EthdevPort::numa_node_of(it) == node; });
  return agree ? node : -1;
}

Nanos patience_for(const NodeConfig& config) {
  const auto in_kernel = [](const PortConfig& port) { return traits_of(port).kernel; };
  if (of_sockets(config) && all_on_loopback(config)) return Idle::kLoopbackPatience;
  return std::ranges::any_of(config.ports, in_kernel) ? Idle::kKernelPatience : Idle::kMemoryPatience;
}

spdlog::level::level_enum level_of(const RingLine& line) {
  using Level = RingLine::Level;
  return line.level == Level::kInfo      ? spdlog::level::info
         : line.level == Level::kWarning ? spdlog::level::warn
                                         : spdlog::level::err;
}

void log(const RingLine& line) { spdlog::log(level_of(line), "{}", line.text); }

}  // namespace

size_t Node::packet_bytes(const NodeConfig& config) {
  return PacketPool::bytes_needed(
      config.lanes * buffers_per_lane(config),
      longest_packet(config.ports, buffer_mtu(config), EthdevPort::may_need_power_of_two_buffers));
}

Node::Node(const NodeConfig& config, RingLinks& links, unsigned index, const PairKeys* pairs)
    : config_(config),
      classifier_(config.tos_compressed, config.tos_raw, config.tos_control),
      incarnation_(random_bits()) {
  for (unsigned i = 0; i < config_.threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(config_.idle, patience_for(config_)));
  }
  for (unsigned i = 0; i < config_.lanes * ranks_per_node(config_); ++i)
    desks_.push_back(std::make_unique<ControlChannel>());
  // The server is made before everything else that other programs can see. If a second daemon of this configuration is
  // started, it fails here and touches nothing.
  make_server();
  claim_address();
  // All lanes share one pool. A queue may have packets of several lanes, and must not run out of buffers while these
  // lanes hold some.
  pools_.push_back(std::make_unique<PacketPool>(
      "n" + std::to_string(index), config_.lanes * buffers_per_lane(config_),
      longest_packet(config_.ports, buffer_mtu(config_), EthdevPort::needs_power_of_two_buffers),
      buffers_node(config_)));
  make_ports(links, index);
  agree_on_workers();
  make_lanes();
  read_keys(pairs);
  make_neighbours();
  connect_ports();
  for (unsigned number = 0; number < config_.lanes; ++number) {
    for (unsigned local = 0; local < ranks_per_node(config_); ++local) connect_lane(number, local);
  }
  make_prober();
}

Node::~Node() {
  stop_workers();
  for (NodePort& it : ports_) {
    if (it.port->leave()) (void)it.port.release();
  }
}

Neighbour* Node::neighbour(unsigned node) noexcept {
  const auto it = std::ranges::find_if(neighbours_, [node](const auto& each) { return each->node == node; });
  return it == neighbours_.end() ? nullptr : it->get();
}

// ---- Lanes

void Node::make_lanes() {
  const unsigned ranks = ranks_per_node(config_);
  TrainerOpsSetup setup;
  setup.lanes = config_.lanes;
  setup.trainers = config_.local_reduce ? config_.trainers : 1;
  setup.node = config_.rank;
  setup.operation_timeout = config_.operation_timeout;
  setup.limits = {.world = static_cast<unsigned>(config_.nodes.size()) * config_.trainers,
                  .max_bytes = config_.max_tensor,
                  .local_reduce = config_.local_reduce,
                  .codec = config_.codec,
                  .strategies = config_.strategies,
                  .ranks = static_cast<unsigned>(config_.nodes.size()) * ranks,
                  .links = links_all(config_.strategies, static_cast<unsigned>(config_.nodes.size()) * ranks)};
  for (unsigned local = 0; local < ranks && config_.lanes > 1; ++local) {
    looks_.push_back(std::make_unique<ScanBarrier>(config_.lanes));
  }
  for (setup.lane = 0; setup.lane < config_.lanes; ++setup.lane) {
    for (unsigned local = 0; local < ranks; ++local) {
      setup.first_trainer = local;
      setup.first_rank = config_.rank * config_.trainers + local;
      setup.looks = looks_.empty() ? nullptr : looks_[local].get();
      ControlChannel& channel = *desks_[lanes_.size()];
      ExchangeConfig exchange = exchange_config(config_, config_.rank * ranks + local, incarnation_);
      // Several ranks send to this node at a time unless the ring is the only strategy.
      const unsigned senders = config_.strategies == std::vector{StrategyId{}} ? 1 : 2;
      for (const NodePort& it : ports_) exchange.window = std::min(exchange.window, it.port->most_waiting() / senders);
      lanes_.push_back(std::make_unique<Lane>(exchange, setup, *pools_.front(), channel));
      trace_.add(*lanes_.back(), setup.lane, channel);
      worker_of(setup.lane).add(*lanes_.back());
    }
  }
}

void Node::make_prober() {
  std::vector<ProbeRun::Setup> setups;
  std::vector<ProbeBoard*> boards;
  std::vector<ProbeBoard*> lengths;
  std::vector<std::atomic<uint32_t>*> paths;
  for (const auto& it : neighbours_) {
    ProbeRun::Setup setup;
    setup.node = it->node;
    setup.address = address_text(config_.nodes[it->node]);
    setup.mac = &it->mac;
    setup.tos = {config_.tos_compressed, config_.tos_raw, config_.tos_control};
    setup.mtu = config_.mtu;
    setup.overhead =
        ip_udp_bytes(config_) + (config_.security == Security::kNone ? 0 : sealed_bytes(EnvelopeKind::kProbe));
    setups.push_back(setup);
    boards.push_back(&it->probes);
    lengths.push_back(&it->lengths);
    paths.push_back(&it->path_bytes);
  }
  prober_ = std::make_unique<Prober>(setups, boards);
  paths_ = std::make_unique<PathWatch>(setups, lengths, std::move(paths), random_bits);
}

void Node::start_probing(Nanos most, Nanos now) { prober_->begin(now, most, random_bits()); }

// Wakes the first worker if probes must be sent. It has the first queue of each port, which sends them.
void Node::step_probing(Nanos now) {
  const bool asked = prober_->step(now);
  const bool watched = paths_->step(now);
  if (asked || watched) gl_ring(worker_of(0).doorbell());
}

void Node::make_server() {
  const ExchangeConfig exchange = exchange_config(config_, 0, 1);
  ServerLanes lanes{
      .lanes = config_.lanes, .doorbells = {}, .channels = {}, .packets = {exchange.mtu, exchange.around}};
  const unsigned ranks = ranks_per_node(config_);
  for (unsigned number = 0; number < config_.lanes; ++number) {
    lanes.doorbells.push_back(worker_of(number).doorbell());
    for (unsigned trainer = 0; trainer < config_.trainers; ++trainer) {
      lanes.channels.push_back(desks_[number * ranks + trainer % ranks].get());
    }
  }
  lanes.mbps = [this] {
    unsigned least = 0;
    for (const NodePort& it : ports_) {
      const unsigned speed = it.port->link_speed();
      if (speed != 0 && (least == 0 || speed < least)) least = speed;
    }
    return least;
  };
  server_ = std::make_unique<Server>(config_, std::move(lanes));
}

// ---- Start and end

std::vector<std::string> Node::files() const {
  std::vector<std::string> paths = {config_.socket, config_.socket + ".lock", config_.admin, config_.admin + ".lock"};
  if (const std::string& metrics = config_.metrics_socket; !metrics.empty()) {
    paths.insert(paths.end(), {metrics, metrics + ".lock"});
  }
  for (const NodePort& it : ports_) paths.push_back(it.port->socket_file());
  return paths;
}

void Node::start(Nanos now) {
  log_faults(now);
  log_numa();
  for (size_t i = 0; i < workers_.size(); ++i) {
    const int core = config_.cores.empty() ? -1 : static_cast<int>(config_.cores[i]);
    workers_[i]->start("gl-n" + std::to_string(config_.rank) + "-w" + std::to_string(i), core);
  }
  log_ring(now);  // no neighbour is connected yet, but RingWatch learns which ones to expect
}

void Node::open() { server_->open(); }

void Node::log_faults(Nanos now) {
  if (!config_.faults.any()) return;
  spdlog::warn("node {}: faults are injected into received packets: {}: results stay correct, throughput drops",
               config_.rank, faults_summary(config_.faults));
  faults_logged_at_ = now;
}

void Node::maintain(Nanos now) {
  if (now - faults_logged_at_ > kFaultsInterval) log_faults(now);
  trace_.maintain(now);
  step_keys(now);
  for (NodePort& it : ports_) it.port->maintain();
  look_for_wrong_lanes();
  log_addresses(now);
  limiter_.step(now);
  log_failures(now);
  log_ring(now);
  log_choices(now);
}

void Node::log_ring(Nanos now) {
  const RingFacts facts = ring_facts(*this, now);
  for (const RingLine& line : ring_.look(facts, now)) log(line);
  for (const RingLine& line : paths_->look(config_.rank, facts.neighbours, now)) log(line);
}

void Node::log_failures(Nanos now) {
  std::vector<FailedOperations> all;
  for_each_lane([&all](const Lane& lane, unsigned) {
    const RingSnapshot ring = lane.ring_snapshot();
    all.push_back({.rank = lane.rank(), .count = ring.failures, .last = ring.failed, .before = ring.before});
  });
  for (const RingLine& line : failures_.look(config_.rank, all, now)) limiter_.log(level_of(line), line.text);
}

void Node::log_choices(Nanos now) {
  for (const ReportWatch::Line& line : choices_.look(plan_figures(server_->reports()), now)) {
    limiter_.log(line.warning ? spdlog::level::warn : spdlog::level::info, line.kind, line.text);
  }
}

std::optional<double> Node::failed_ago(Nanos now) const noexcept {
  if (failures_.failed_at() == 0) return std::nullopt;
  return static_cast<double>(now - failures_.failed_at()) / kSecond;
}

uint32_t Node::in_flight() const noexcept {
  uint32_t sum = 0;
  for (const auto& channel : desks_) sum += channel->in_flight.load(std::memory_order_relaxed);
  return sum;
}

Nanos Node::awaited(unsigned trainer) const noexcept {
  Nanos sum = 0;
  for (const auto& channel : desks_) sum += channel->awaited_ns[trainer].load(std::memory_order_relaxed);
  return sum / desks_.size();
}

size_t Node::unacknowledged() const noexcept {
  size_t sum = 0;
  for_each_lane([&sum](const Lane& lane, unsigned) {
    for (size_t i = 0; i < lane.links(); ++i) {
      const LinkSnapshot link = lane.link_snapshot(i);
      if (link.up) sum += link.in_flight;
    }
  });
  return sum;
}

void Node::post_close(const char* why) {
  for (size_t i = 0; i < desks_.size(); ++i) {
    auto command = std::make_unique<Command>();
    command->kind = Command::Kind::kClose;
    command->why = why;
    command->trainer = static_cast<unsigned>(i % ranks_per_node(config_));
    if (desks_[i]->mailbox.post(command.get())) closing_.push_back(std::move(command));
  }
}

bool Node::closed() const noexcept {
  return std::ranges::all_of(closing_, [](const auto& it) { return it->done.load(std::memory_order_acquire); });
}

void Node::stop_workers() {
  for (const auto& worker : workers_) worker->stop();
  for (const NodePort& it : ports_) {
    for (const auto& queue : it.queues) queue->publish();
  }
  for (const auto& lane : lanes_) lane->publish();
}

void Node::abandon_memory() noexcept {
  for (const auto& pool : pools_) pool->abandon();
}

void Node::say_goodbye() {
  for (NodePort& it : ports_) {
    for (const auto& queue : it.queues) {
      queue->say_goodbye();
      queue->drop_queued();
      queue->drop_held();
    }
  }
}

}  // namespace gradlane
