// simnet.h - nodes with an exchange each, on a simulated lossy network, in virtual time and one thread
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
  kCables,  // a ring: each node is joined to the next and to the one before (cables.h)
  kSwitch,  // any node to any other, through a port each (switch.h)
};

struct SimConfig {
  unsigned nodes = 2;
  SimTopology topology = SimTopology::kCables;
  uint64_t seed = 1;  // of faults and incarnations
  // At the start: of every cable; or of every port, whose queue is in the switch, with half of the delay on each side
  // of it.
  LinkModel link;
  Faults faults;                     // of every path from one node to another
  size_t buffers = size_t{1} << 20;  // per node: allocate() fails while its exchange holds as many
  size_t pause_queue = 4096;         // packets that wait for a paused node
  Nanos start = 0;                   // virtual time
  // Of every node, but for world, rank and incarnation, which SimNet fills in; `adjust` has the last word.
  ExchangeConfig exchange;
  std::function<void(unsigned node, ExchangeConfig& config)> adjust;
};

// Nothing moves but in run_until() and its kin. At each instant all packets that are due are given to
// their nodes, then each of these nodes is polled, as are those whose deadline() has come or that were submitted to.
// Computing takes no virtual time. Everything is a function of SimConfig and of the calls made: two runs are the same
// to the byte and to the nanosecond.
//
// The functions that change something may be called at any time, from filter and tap too, but for restart_node(), and
// they act from the present instant on. All throw SetupError for nodes, paths, cables and ports that are not there.
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

  // Returns the id; throws SetupError if the exchange refuses. The completion goes to node(i).completions(). Operations
  // must come this way, not directly to the exchange.
  uint64_t submit(unsigned i, const Operation& operation);
  [[nodiscard]] Exchange::Submitted try_submit(unsigned i, const Operation& operation);
  void abort(unsigned i, uint64_t id);
  void close(unsigned i);

  // Every operation that was submitted has ended (on nodes that were restarted since: is forgotten).
  [[nodiscard]] bool idle() const noexcept { return core_.pending == 0; }

  // ---- Time

  // Everything up to and at `time`.
  void run_until(Nanos time);
  // Until done(), which is asked after every instant; false if that is not so at `limit`.
  template <typename Done>
  bool run_until(Done&& done, Nanos limit) {
    while (!done()) {
      if (!step(limit)) return done();
    }
    return true;
  }
  bool run_until_idle(Nanos limit);
  // The next instant at which something happens; false, and the time is `limit`, if that is later.
  bool step(Nanos limit);

  // ---- Paths: from a node to one that it is joined to

  void set_faults(unsigned from, unsigned to, const Faults& faults);
  void set_faults(const Faults& faults);  // of all
  // Loses what leaves `from` for `to`, or arrives there from it, from `begin` to before `end`. Replaces an earlier
  // blackout of this path.
  void black_out(unsigned from, unsigned to, Nanos begin, Nanos end = kNever);
  void lift(unsigned from, unsigned to) { black_out(from, to, kNever); }

  void set_link(unsigned from, unsigned to, const LinkModel& model);  // of a cable, one way
  void set_port(unsigned node, const LinkModel& model);               // of a switch, both ways

  // Asked for every packet that a node transmits; on false it vanishes before it reaches the wire. None: null.
  void set_filter(PacketFilter filter) { core_.filter = std::move(filter); }
  // Sees every packet just before a node receives it. `from` of an injected packet is what it was injected as.
  void set_tap(PacketTap tap) { core_.tap = std::move(tap); }
  // Has node `to` receive these bytes, at most max_packet(), as if from the neighbour of rank `from`.
  void inject(unsigned to, unsigned from, std::span<const uint8_t> packet);
  [[nodiscard]] size_t max_packet() const noexcept { return core_.pool.capacity(); }

  // ---- Nodes

  // As a stopped process: not polled, and packets wait, until resume().
  void pause(unsigned i);
  void resume(unsigned i);
  // Has it polled at the present time; after direct calls into its exchange.
  void wake(unsigned i) { node(i).wake(); }
  // Destroys the exchange and makes another one with another incarnation: ids and completions start anew, operations
  // that had not ended are forgotten, packets that waited for a paused node are gone. Aborts if buffers are missing.
  void restart_node(unsigned i);

  // ---- Figures

  // A packet through a switch counts as sent once, on the link from its node.
  [[nodiscard]] const LinkStats& stats(unsigned from, unsigned to) const;
  [[nodiscard]] LinkStats stats() const;  // of all paths together
  // Over all nodes, including exchanges that restart_node() destroyed.
  [[nodiscard]] uint64_t count(Counter counter) const noexcept;
  // Buffers that exchanges hold, and those on wires, in queues and before paused nodes.
  [[nodiscard]] size_t buffers_taken() const noexcept { return core_.pool.taken(); }

 private:
  [[nodiscard]] ExchangeConfig config_of(unsigned i) const;
  [[nodiscard]] size_t longest_mtu() const;
  void require_joined(unsigned from, unsigned to) const;
  void fire(size_t source);
  void poll_ready();

  SimConfig config_;
  std::vector<unsigned> lives_;  // of each node: restarts
  SimCore core_;
  std::unique_ptr<SimNetwork> network_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<unsigned> polling_;           // poll_ready()'s, kept for its memory
  std::array<uint64_t, kCounters> past_{};  // of exchanges that were destroyed
};

}  // namespace gradlane
