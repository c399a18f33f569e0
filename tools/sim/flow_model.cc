// flow_model.cc - exchanges that gradlane does not have, simulated as flows over a switch
#include "tools/sim/flow_model.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <vector>

#include "base/error.h"
#include "base/parse.h"
#include "collectives/wire.h"
#include "sim/switch.h"

namespace gradlane {
namespace {

constexpr size_t kHeaders = sizeof(LinkHeader) + sizeof(RunHeader);

// Bytes from one node to another. They may be sent when other flows have arrived.
struct Flow {
  unsigned from;
  unsigned to;
  size_t to_send;
  size_t to_arrive;
  size_t waits_for = 0;           // number of flows that it waits for
  std::vector<uint32_t> waiting;  // flows that wait for this one
};

using Ids = std::vector<uint32_t>;

class FlowGraph {
 public:
  uint32_t add(unsigned from, unsigned to, size_t bytes, const Ids& after) {
    const auto id = static_cast<uint32_t>(flows.size());
    flows.push_back({from, to, bytes, bytes, after.size(), {}});
    for (const uint32_t earlier : after) flows[earlier].waiting.push_back(id);
    return id;
  }
  std::vector<Flow> flows;
};

// ---- The flows of each exchange

FlowGraph aggregators(unsigned nodes, unsigned group, size_t bytes) {
  FlowGraph script;
  Ids sums;  // flows that the root waits for
  for (unsigned first = 0; first < nodes; first += group) {
    Ids gradients;
    for (unsigned i = 1; i < group; ++i) gradients.push_back(script.add(first + i, first, bytes, {}));
    if (first == 0) {
      sums = gradients;
    } else {
      sums.push_back(script.add(first, 0, bytes, gradients));
    }
  }
  // The root sends to its own members last, because the results of the others have further to go.
  for (unsigned first = nodes - group; first != 0; first -= group) {
    const Ids sum = {script.add(0, first, bytes, sums)};
    for (unsigned i = 1; i < group; ++i) (void)script.add(first, first + i, bytes, sum);
  }
  for (unsigned i = 1; i < group; ++i) (void)script.add(0, i, bytes, sums);
  return script;
}

// For each member of a group, the flows that must arrive before it sends.
using Ring = std::vector<Ids>;

// Adds G - 1 steps of a ring. In each step, a member forwards the block that came in the step before. `block(i, step)`:
// bytes that member i sends. Returns the flows that members wait for after the last step.
template <class Block>
Ring around(FlowGraph& script, unsigned first, Ring have, Block&& block) {
  const auto group = static_cast<unsigned>(have.size());
  for (unsigned step = 0; step + 1 < group; ++step) {
    Ring next(group);
    for (unsigned i = 0; i < group; ++i) {
      const unsigned to = (i + 1) % group;
      next[to] = {script.add(first + i, first + to, block(i, step), have[i])};
    }
    have = std::move(next);
  }
  return have;
}

FlowGraph rings_aggregator(unsigned nodes, unsigned group, size_t bytes) {
  FlowGraph script;
  const auto share = [&](unsigned i) { return bytes * (i % group + 1) / group - bytes * (i % group) / group; };
  Ids sums;
  for (unsigned first = 0; first < nodes; first += group) {
    // Member i begins with block i, and ends with block i + 1.
    const Ring ends =
        around(script, first, Ring(group), [&](unsigned i, unsigned step) { return share(i + group - step); });
    for (unsigned i = 0; i < group; ++i) {
      if (first + i == 0) {
        sums.insert(sums.end(), ends[i].begin(), ends[i].end());
      } else {
        sums.push_back(script.add(first + i, 0, share(i + 1), ends[i]));
      }
    }
  }
  // The root sends all shares before it takes part in its own ring.
  std::vector<Ring> begins(nodes / group, Ring(group));
  for (unsigned rank = 0; rank < nodes; ++rank) {
    begins[rank / group][rank % group] = rank == 0 ? sums : Ids{script.add(0, rank, share(rank + 1), sums)};
  }
  for (unsigned first = 0; first < nodes; first += group) {
    (void)around(script, first, begins[first / group],
                 [&](unsigned i, unsigned step) { return share(i + 1 + group - step); });
  }
  return script;
}

// Adds a step in which nodes whose numbers differ in one bit exchange bytes. `have`: flows that each node waits for.
// Returns the flows that each node waits for after the step.
template <class Bytes>
Ring exchange_bit(FlowGraph& script, const Ring& have, unsigned bit, Bytes&& bytes) {
  Ring next(have.size());
  for (unsigned from = 0; from < have.size(); ++from) {
    const unsigned to = from ^ bit;
    // The next step needs what came in this step, and what this node had before.
    next[to] = have[to];
    next[to].push_back(script.add(from, to, bytes(from), have[from]));
  }
  return next;
}

FlowGraph doubling(unsigned nodes, unsigned /*group*/, size_t bytes) {
  FlowGraph script;
  Ring have(nodes);
  for (unsigned bit = 1; bit < nodes; bit *= 2) {
    have = exchange_bit(script, have, bit, [bytes](unsigned) { return bytes; });
  }
  return script;
}

FlowGraph halving(unsigned nodes, unsigned /*group*/, size_t bytes) {
  FlowGraph script;
  Ring have(nodes);
  const auto up_to = [&](unsigned block) { return bytes * block / nodes; };
  // There is a block for each node. A node sends the `bit` blocks of the receiver's half there. The second loop sends
  // results back.
  for (unsigned bit = nodes / 2; bit > 0; bit /= 2) {
    have = exchange_bit(script, have, bit, [&](unsigned from) {
      const unsigned first = (from ^ bit) / bit * bit;
      return up_to(first + bit) - up_to(first);
    });
  }
  for (unsigned bit = 1; bit < nodes; bit *= 2) {
    have = exchange_bit(script, have, bit, [&](unsigned from) {
      const unsigned first = from / bit * bit;
      return up_to(first + bit) - up_to(first);
    });
  }
  return script;
}

// In the order of FlowModel::Kind.
struct PlayRow {
  const char* name;
  bool has_group;
  FlowGraph (*script)(unsigned nodes, unsigned group, size_t bytes);
};
constexpr PlayRow kPlays[] = {{"aggregators", true, aggregators},
                              {"rings-aggregator", true, rings_aggregator},
                              {"doubling", false, doubling},
                              {"halving", false, halving}};

// ---- Simulation of the flows

class FlowSimulation {
 public:
  FlowSimulation(FlowGraph script, unsigned nodes, const LinkModel& model, size_t mtu)
      : flows_(std::move(script.flows)),
        core_(nodes + SimSwitch::sources(nodes), mtu, 0),
        fabric_(core_, nodes, 0, model, {}),
        model_(model),
        packet_(mtu),
        payload_((mtu - kHeaders) / kGranuleBytes * kGranuleBytes),
        limit_(std::max<size_t>(1, model.queue_bytes / (mtu + model.overhead_bytes))) {
    hosts_.reserve(nodes);
    for (unsigned i = 0; i < nodes; ++i) fabric_.add_host(hosts_.emplace_back(*this, i));
  }

  PlayResult run() {
    Ids first;
    for (uint32_t id = 0; id < flows_.size(); ++id) {
      if (flows_[id].waits_for == 0) first.push_back(id);
    }
    for (const uint32_t id : first) begin(id);
    while (core_.schedule.time() != kNever) {
      core_.now = core_.schedule.time();
      while (core_.schedule.time() == core_.now) {
        while (core_.schedule.time() == core_.now) fire(core_.schedule.source());
        fabric_.settle();
      }
    }
    PlayResult result{last_, {}};
    fabric_.each_path([&result](const SimPath& path) { result.stats += path.stats(); });
    return result;
  }

 private:
  struct Host final : SimHost {
    Host(FlowSimulation& owner, unsigned number) : player(owner), index(number) {}
    void arrive(SimBuffer* buffer) override { player.arrive(buffer); }

    FlowSimulation& player;
    unsigned index;
    std::deque<uint32_t> sending;  // flows to send, in order
    Nanos free_at = 0;             // time when its port is free
    size_t coming = 0;             // packets in flight to it
    std::vector<unsigned> held;    // nodes that wait until fewer packets are in flight to it
  };

  void begin(uint32_t id) {
    if (flows_[id].to_send == 0) return end(id);
    hosts_[flows_[id].from].sending.push_back(id);
    send(hosts_[flows_[id].from]);
  }

  void end(uint32_t id) {
    last_ = core_.now;
    for (const uint32_t next : flows_[id].waiting) {
      if (--flows_[next].waits_for == 0) begin(next);
    }
  }

  // Sends a packet of the first flow for which the receiver's queue has room.
  void send(Host& host) {
    if (core_.now < host.free_at) return;
    for (auto place = host.sending.begin(); place != host.sending.end(); ++place) {
      const uint32_t id = *place;
      Flow& flow = flows_[id];
      Host& to = hosts_[flow.to];
      if (to.coming >= limit_) {
        if (std::ranges::find(to.held, host.index) == to.held.end()) to.held.push_back(host.index);
        continue;
      }
      const size_t bytes = std::min(flow.to_send, payload_);
      flow.to_send -= bytes;
      if (flow.to_send == 0) host.sending.erase(place);
      transmit(host, to, id, kHeaders + bytes);
      return;
    }
  }

  void transmit(Host& host, Host& to, uint32_t id, size_t bytes) {
    store(packet_.data(), id);
    if (!fabric_.transmit(host.index, to.index, std::span(packet_).first(bytes))) {
      throw SetupError("a played flow met a full queue: this is a bug in gradlane");
    }
    ++to.coming;
    const uint64_t bits = 8 * (bytes + model_.overhead_bytes);
    host.free_at = core_.now + (bits * kSecond + model_.bits_per_second - 1) / model_.bits_per_second;
    core_.schedule.set(host.index, host.free_at);
  }

  void fire(size_t source) {
    if (source >= hosts_.size()) return fabric_.fire(source);
    core_.schedule.set(source, kNever);
    send(hosts_[source]);
  }

  void arrive(SimBuffer* buffer) {
    const auto id = load<uint32_t>(buffer->data());
    Host& to = hosts_[buffer->to];
    Flow& flow = flows_[id];
    flow.to_arrive -= buffer->bytes - kHeaders;
    core_.pool.give(buffer);
    --to.coming;
    std::vector<unsigned> held;
    held.swap(to.held);
    for (const unsigned from : held) send(hosts_[from]);
    if (flow.to_arrive == 0) end(id);
  }

  std::vector<Flow> flows_;
  SimCore core_;
  SimSwitch fabric_;
  LinkModel model_;
  std::vector<uint8_t> packet_;
  size_t payload_;
  size_t limit_;  // most packets in flight to one node: they fit into its queue in the switch
  std::vector<Host> hosts_;
  Nanos last_ = 0;
};

}  // namespace

std::string FlowModel::name() const {
  const PlayRow& row = kPlays[static_cast<size_t>(kind)];
  return row.name + (row.has_group ? ":" + std::to_string(group) : "");
}

std::string FlowModel::fault(unsigned nodes) const {
  const std::string of_nodes = std::to_string(nodes) + " nodes";
  if (nodes % group != 0) return name() + ": " + std::to_string(group) + " does not divide " + of_nodes;
  const bool bits = kind == Kind::kDoubling || kind == Kind::kHalving;
  return bits && !std::has_single_bit(nodes) ? name() + ": " + of_nodes + " are not a power of two" : "";
}

FlowModel find_flow_model(std::string_view name) {
  for (const PlayRow& row : kPlays) {
    const auto kind = static_cast<FlowModel::Kind>(&row - kPlays);
    if (name == row.name && !row.has_group) return {kind, 1};
    const std::string prefix = std::string(row.name) + ":";
    if (!row.has_group || !name.starts_with(prefix)) continue;
    const auto group = parse_decimal(name.substr(prefix.size()), 1, kMaxWorld);
    if (group) return {kind, static_cast<unsigned>(*group)};
  }
  throw SetupError("--play '" + std::string(name) + "': allowed: " + kPlayUsage);
}

PlayResult run_flow_model(const FlowModel& play, unsigned nodes, size_t bytes, const LinkModel& model, size_t mtu) {
  const PlayRow& row = kPlays[static_cast<size_t>(play.kind)];
  return FlowSimulation(row.script(nodes, play.group, bytes), nodes, model, mtu).run();
}

}  // namespace gradlane
