// simnet.cc - nodes with an exchange each, on a simulated ring of lossy links, in virtual time and one thread
#include "tools/simnet/simnet.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr size_t kOversize = 64;  // by how much injected packets can exceed the longest MTU

// What the seed is used for, so that no two uses have the same random numbers.
enum class Use : uint64_t { kLink = 1, kIncarnation = 2 };

uint64_t seed_of(uint64_t seed, Use use, uint64_t which) {
  return Random::mix(Random::mix(seed, static_cast<uint64_t>(use)), which);
}

size_t links_of(unsigned nodes) { return nodes < 2 ? 0 : nodes == 2 ? 2 : 2 * size_t{nodes}; }

unsigned checked_nodes(unsigned nodes) {
  if (nodes >= 1 && nodes <= kMaxWorld) return nodes;
  throw SetupError("simulated network: " + std::to_string(nodes) + " nodes; allowed: 1 to " +
                   std::to_string(kMaxWorld));
}

}  // namespace

SimNet::SimNet(const SimConfig& config)
    : config_(config),
      lives_(checked_nodes(config.nodes)),
      core_(config.nodes + links_of(config.nodes), longest_mtu() + kOversize, config.start) {
  make_links();
  const SimNode::Limits limits = {config.buffers, config.pause_queue};
  const auto port = [this](unsigned from, unsigned to) {
    const size_t link = link_index(from, to);
    return SimNode::Port{&links_[link], config_.nodes + link};
  };
  const unsigned p = config.nodes;
  for (unsigned i = 0; i < p; ++i) {
    const SimNode::Port next = p > 1 ? port(i, (i + 1) % p) : SimNode::Port{};
    const SimNode::Port previous = p > 2 ? port(i, (i + p - 1) % p) : SimNode::Port{};
    nodes_.push_back(std::make_unique<SimNode>(core_, i, limits, next, previous));
  }
  for (const auto& node : nodes_) node->start(config_of(node->index()));
}

void SimNet::make_links() {
  const unsigned p = config_.nodes;
  const auto add = [this](unsigned from, unsigned to) {
    links_.emplace_back(from, to, seed_of(config_.seed, Use::kLink, links_.size()));
    links_.back().set_model(config_.link);
    links_.back().set_faults(config_.faults);
  };
  for (unsigned i = 0; p > 1 && i < p; ++i) {
    add(i, (i + 1) % p);
    if (p > 2) add(i, (i + p - 1) % p);
  }
}

ExchangeConfig SimNet::config_of(unsigned i) const {
  ExchangeConfig config = config_.exchange;
  config.world = config_.nodes;
  config.rank = i;
  config.incarnation = seed_of(config_.seed, Use::kIncarnation, uint64_t{lives_[i]} * kMaxWorld + i);
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

size_t SimNet::link_index(unsigned from, unsigned to) const {
  const unsigned p = config_.nodes;
  if (p > 1 && from < p && to < p) {
    if (to == (from + 1) % p) return p == 2 ? from : 2 * size_t{from};
    if (from == (to + 1) % p) return 2 * size_t{from} + 1;
  }
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
    while (core_.schedule.time() == core_.now) fire(core_.schedule.source());
  }
  poll_ready();
  return true;
}

// Lets happen what a source of events has at the present time.
void SimNet::fire(size_t source) {
  if (source < config_.nodes) {
    nodes_[source]->timer();
    return;
  }
  SimLink& link = links_[source - config_.nodes];
  SimNode& to = *nodes_[link.to()];
  while (link.due() <= core_.now) {
    SimBuffer* const buffer = link.arrive(core_.pool);
    if (buffer != nullptr) to.arrive(buffer, link.from());
  }
  core_.schedule.set(source, link.due());
}

// Polling a node may wake others, for the next round at the same time.
void SimNet::poll_ready() {
  polling_.swap(core_.ready);
  for (const unsigned i : polling_) nodes_[i]->poll();
  polling_.clear();
}

// ---- Links

void SimNet::set_link(unsigned from, unsigned to, const LinkModel& model) {
  links_[link_index(from, to)].set_model(model);
}

void SimNet::set_faults(unsigned from, unsigned to, const Faults& faults) {
  links_[link_index(from, to)].set_faults(faults);
}

void SimNet::set_faults(const Faults& faults) {
  for (SimLink& link : links_) link.set_faults(faults);
}

void SimNet::black_out(unsigned from, unsigned to, Nanos begin, Nanos end) {
  links_[link_index(from, to)].black_out(begin, end);
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

const LinkStats& SimNet::stats(unsigned from, unsigned to) const { return links_[link_index(from, to)].stats(); }

LinkStats SimNet::stats() const {
  LinkStats total;
  for (const SimLink& link : links_) total += link.stats();
  return total;
}

uint64_t SimNet::count(Counter counter) const noexcept {
  uint64_t total = past_[static_cast<size_t>(counter)];
  for (const auto& node : nodes_) total += node->exchange().counters()[counter];
  return total;
}

}  // namespace gradlane
