// simnet.h - nodes, each with an exchange, on a simulated lossy network, in virtual time and one thread
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange/exchange.h"
#include "sim/link.h"
#include "sim/network.h"
#include "sim/node.h"

namespace gradlane {

enum class SimTopology : uint8_t {
  kCables,  // a ring: each node has links to the next node and to the previous one
  kSwitch,  // any node reaches any other, through one port per node (switch.h)
};

struct SimConfig {
  unsigned nodes = 2;
  SimTopology topology = SimTopology::kCables;
  uint64_t seed = 1;  // seed of faults and incarnations
  // Initial model of every link, or of every port of the switch. The queue of a port is in the switch: half of the
  // delay passes before the queue, and half after it.
  LinkModel link;
  Faults faults;                     // faults of every path from one node to another
  size_t buffers = size_t{1} << 20;  // limit per node: allocate() fails while its exchange holds this many
  size_t pause_queue = 4096;         // limit of packets that wait for a paused node
  Nanos start = 0;                   // virtual time at the start
  // Settings of every exchange. SimNet fills in world, rank and incarnation. After that, `adjust` may change anything.
  ExchangeConfig exchange;
  std::function<void(unsigned node, ExchangeConfig& config)> adjust;
};

// Virtual time advances only in run_until(), run_until_idle() and step(). At each instant, all packets that are due are
// given to their nodes. Then these nodes are polled, and so are nodes whose deadline() has come or that got operations.
// Computing takes no virtual time. Everything is a function of SimConfig and of the calls made: two runs are the same
// to the byte and to the nanosecond.
//
// Functions that change something take effect at the present instant. They may be called at any time, from filter and
// tap too. The exception is restart_node(). All functions throw SetupError for nodes, paths, links and ports that do
// not exist.
class SimNet {
 public:
  explicit SimNet(const SimConfig& config);
  SimNet(const SimNet&) = delete;
  SimNet& operator=(const SimNet&) = delete;

  [[nodiscard]] unsigned nodes() const noexcept { return static_cast<unsigned>(nodes_.size()); }
  [[nodiscard]] const SimConfig& config() const noexcept { return config_; }
  [[nodiscard]] SimNode& node(unsigned i);
  [[nodiscard]] const SimNode& node(unsigned i) const;
  [[nodiscard]] Nanos now() const noexcept { return core_.now; }

  // ---- Operations

  // Submits an operation to node `i` and returns its id. Throws SetupError if the exchange refuses it. The completion
  // goes to node(i).completions(). Operations must be submitted here, not directly to the exchange.
  uint64_t submit(unsigned i, const Operation& operation);
  [[nodiscard]] Exchange::Submitted try_submit(unsigned i, const Operation& operation);
  void abort(unsigned i, uint64_t id);
  void close(unsigned i);

  // Returns whether every submitted operation has ended. Operations that restart_node() made a node forget do not
  // count.
  [[nodiscard]] bool idle() const noexcept { return core_.pending == 0; }

  // ---- Time

  // Runs everything that happens up to and at `time`.
  void run_until(Nanos time);
  // Runs until done() returns true; it is called after every instant. Returns false if it is still false at `limit`.
  template <typename Done>
  bool run_until(Done&& done, Nanos limit) {
    while (!done()) {
      if (!step(limit)) return done();
    }
    return true;
  }
  bool run_until_idle(Nanos limit);
  // Runs the next instant at which something happens. If that is after `limit`, sets the time to `limit` and returns
  // false.
  bool step(Nanos limit);

  // ---- Paths: from a node to a node that it is joined to

  void set_faults(unsigned from, unsigned to, const Faults& faults);
  void set_faults(const Faults& faults);  // sets the faults of all paths
  // Loses packets that leave `from` for `to`, or arrive there from it, from `begin` to before `end`. Replaces an
  // earlier blackout of this path.
  void black_out(unsigned from, unsigned to, Nanos begin, Nanos end = kNever);
  void lift(unsigned from, unsigned to) { black_out(from, to, kNever); }

  void set_link(unsigned from, unsigned to, const LinkModel& model);  // sets one direction of a link
  void set_port(unsigned node, const LinkModel& model);               // sets both directions of a port of the switch

  // The filter is called for every packet that a node transmits. If it returns false, the packet vanishes before it
  // reaches the wire. Null: no filter.
  void set_filter(PacketFilter filter) { core_.filter = std::move(filter); }
  // The tap sees every packet just before a node receives it. For an injected packet, its `from` is the one that
  // inject() got.
  void set_tap(PacketTap tap) { core_.tap = std::move(tap); }
  // Makes node `to` receive these bytes, at most max_packet(), as if the neighbour of rank `from` had sent them.
  void inject(unsigned to, unsigned from, std::span<const uint8_t> packet);
  [[nodiscard]] size_t max_packet() const noexcept { return core_.pool.capacity(); }

  // ---- Nodes

  // Makes the node act like a stopped process until resume(): it is not polled, and its packets wait.
  void pause(unsigned i);
  void resume(unsigned i);
  // Requests a poll of the node at the present time. It is needed after direct calls into the node's exchange.
  void wake(unsigned i) { node(i).wake(); }
  // Destroys the node's exchange and makes another one, with another incarnation. Ids and completions start again,
  // operations that had not ended are forgotten, and packets that waited for a paused node are lost. Aborts the process
  // if the old exchange did not release all its packet buffers.
  void restart_node(unsigned i);

  // ---- Figures

  // Returns the figures of one path. A packet through a switch counts as sent once, when it leaves its node.
  [[nodiscard]] const LinkStats& stats(unsigned from, unsigned to) const;
  [[nodiscard]] LinkStats stats() const;  // sum over all paths
  // Returns the sum of a counter over all nodes, including exchanges that restart_node() destroyed.
  [[nodiscard]] uint64_t count(Counter counter) const noexcept;
  // Returns how many buffers are in use: held by exchanges, on wires, in queues, or waiting for paused nodes.
  [[nodiscard]] size_t buffers_taken() const noexcept { return core_.pool.taken(); }

 private:
  [[nodiscard]] ExchangeConfig config_of(unsigned i) const;
  [[nodiscard]] size_t longest_mtu() const;
  void require_joined(unsigned from, unsigned to) const;
  void fire(size_t source);
  void poll_ready();

  SimConfig config_;
  std::vector<unsigned> lives_;  // number of restarts of each node
  SimCore core_;
  std::unique_ptr<SimNetwork> network_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<unsigned> polling_;           // list of poll_ready(), a member only to keep its memory
  std::array<uint64_t, kCounters> past_{};  // counters of exchanges that were destroyed
};

}  // namespace gradlane
