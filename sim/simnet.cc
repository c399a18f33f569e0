// simnet.cc - nodes, each with an exchange, on a simulated lossy network, in virtual time and one thread
#include "sim/simnet.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "sim/cables.h"
#include "sim/switch.h"

namespace gradlane {
namespace {

constexpr size_t kOversize = 64;  // bytes by which injected packets can exceed the longest MTU

size_t sources_of(const SimConfig& config) {
  const bool is_switch = config.topology == SimTopology::kSwitch;
  return config.nodes + (is_switch ? SimSwitch::sources(config.nodes) : SimCables::sources(config.nodes));
}

std::unique_ptr<SimNetwork> make_network(SimCore& core, const SimConfig& config) {
  if (config.topology == SimTopology::kSwitch) {
    return std::make_unique<SimSwitch>(core, config.nodes, config.seed, config.link, config.faults);
  }
  return std::make_unique<SimCables>(core, config.nodes, config.seed, config.link, config.faults);
}

unsigned checked_nodes(unsigned nodes) {
  if (nodes >= 1 && nodes <= kMaxWorld) return nodes;
  throw SetupError("simulated network: " + std::to_string(nodes) + " nodes; allowed: 1 to " +
                   std::to_string(kMaxWorld));
}

}  // namespace

SimNet::SimNet(const SimConfig& config)
    : config_(config),
      lives_(checked_nodes(config.nodes)),
      core_(sources_of(config), longest_mtu() + kOversize, config.start),
      network_(make_network(core_, config)) {
  const SimNode::Limits limits = {config.buffers, config.pause_queue};
  for (unsigned i = 0; i < config.nodes; ++i) {
    nodes_.push_back(std::make_unique<SimNode>(core_, *network_, i, limits));
    network_->add_host(*nodes_.back());
  }
  for (const auto& node : nodes_) node->start(config_of(node->index()));
}

ExchangeConfig SimNet::config_of(unsigned i) const {
  ExchangeConfig config = config_.exchange;
  config.world = config_.nodes;
  config.rank = i;
  config.incarnation = sim_seed(config_.seed, SimSeed::kIncarnation, uint64_t{lives_[i]} * kMaxWorld + i);
  if (config_.adjust) config_.adjust(i, config);
  return config;
}

size_t SimNet::longest_mtu() const {
  size_t mtu = 0;
  for (unsigned i = 0; i < config_.nodes; ++i) mtu = std::max(mtu, config_of(i).mtu);
  return mtu;
}

SimNode& SimNet::node(unsigned i) {
  if (i >= nodes_.size()) throw SetupError("simulated network: there is no node " + std::to_string(i));
  return *nodes_[i];
}

const SimNode& SimNet::node(unsigned i) const { return const_cast<SimNet*>(this)->node(i); }

void SimNet::require_joined(unsigned from, unsigned to) const {
  if (network_->joined(from, to)) return;
  throw SetupError("simulated network: there is no link from " + std::to_string(from) + " to " + std::to_string(to));
}

// ---- Operations

uint64_t SimNet::submit(unsigned i, const Operation& operation) {
  const Exchange::Submitted submitted = try_submit(i, operation);
  if (submitted.refusal == Exchange::Refusal::kNone) return submitted.id;
  throw SetupError("simulated network: node " + std::to_string(i) + " refuses an operation, reason " +
                   std::to_string(static_cast<unsigned>(submitted.refusal)));
}

Exchange::Submitted SimNet::try_submit(unsigned i, const Operation& operation) { return node(i).submit(operation); }

void SimNet::abort(unsigned i, uint64_t id) {
  node(i).exchange().abort(id);
  wake(i);
}

void SimNet::close(unsigned i) {
  node(i).exchange().close();
  wake(i);
}

// ---- Time

void SimNet::run_until(Nanos time) {
  while (step(time)) {
  }
}

bool SimNet::run_until_idle(Nanos limit) {
  return run_until([this] { return idle(); }, limit);
}

bool SimNet::step(Nanos limit) {
  if (core_.ready.empty()) {
    if (core_.schedule.time() > limit || core_.schedule.time() == kNever) {
      core_.now = std::max(core_.now, limit);
      return false;
    }
    core_.now = core_.schedule.time();
    // A packet that leaves the switch may arrive at the same instant.
    while (core_.schedule.time() == core_.now) {
      while (core_.schedule.time() == core_.now) fire(core_.schedule.source());
      network_->settle();
    }
  }
  poll_ready();
  return true;
}

void SimNet::fire(size_t source) {
  if (source < nodes_.size()) {
    nodes_[source]->timer();
  } else {
    network_->fire(source);
  }
}

// Polling a node may wake others. They are polled in the next round, at the same time.
void SimNet::poll_ready() {
  polling_.swap(core_.ready);
  for (const unsigned i : polling_) nodes_[i]->poll();
  polling_.clear();
}

// ---- Paths

void SimNet::set_faults(unsigned from, unsigned to, const Faults& faults) {
  require_joined(from, to);
  network_->path(from, to).set_faults(faults);
}

void SimNet::set_faults(const Faults& faults) { network_->set_faults(faults); }

void SimNet::black_out(unsigned from, unsigned to, Nanos begin, Nanos end) {
  require_joined(from, to);
  network_->path(from, to).black_out(begin, end);
}

void SimNet::set_link(unsigned from, unsigned to, const LinkModel& model) {
  require_joined(from, to);
  if (!network_->set_link(from, to, model)) throw SetupError("simulated network: a switch has ports, and no cables");
}

void SimNet::set_port(unsigned i, const LinkModel& model) {
  (void)node(i);
  if (!network_->set_port(i, model)) throw SetupError("simulated network: only a switch has ports");
}

void SimNet::inject(unsigned to, unsigned from, std::span<const uint8_t> packet) {
  if (packet.size() > max_packet()) {
    throw SetupError("simulated network: a packet of " + std::to_string(packet.size()) + " bytes; at most " +
                     std::to_string(max_packet()));
  }
  node(to).inject(from, packet);
}

// ---- Nodes

void SimNet::pause(unsigned i) { node(i).paused_ = true; }

void SimNet::resume(unsigned i) {
  node(i).paused_ = false;
  wake(i);
}

void SimNet::restart_node(unsigned i) {
  SimNode& node = this->node(i);
  for (size_t c = 0; c < kCounters; ++c) past_[c] += node.exchange().counters()[static_cast<Counter>(c)];
  node.stop();
  ++lives_[i];
  const ExchangeConfig config = config_of(i);
  if (config.mtu > max_packet()) throw SetupError("simulated network: a restarted node cannot have a longer MTU");
  node.start(config);
}

// ---- Figures

const LinkStats& SimNet::stats(unsigned from, unsigned to) const {
  static constexpr LinkStats kNone;
  require_joined(from, to);
  const SimPath* const path = network_->find_path(from, to);
  return path == nullptr ? kNone : path->stats();
}

LinkStats SimNet::stats() const {
  LinkStats total;
  network_->each_path([&total](const SimPath& path) { total += path.stats(); });
  return total;
}

uint64_t SimNet::count(Counter counter) const noexcept {
  uint64_t total = past_[static_cast<size_t>(counter)];
  for (const auto& node : nodes_) total += node->exchange().counters()[counter];
  return total;
}

}  // namespace gradlane
