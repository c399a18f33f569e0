// network.h - the network that joins the nodes of a simulation: the interface of SimCables and SimSwitch
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/random.h"
#include "sim/core.h"
#include "sim/link.h"

namespace gradlane {

// The uses of the seed. Each use has random numbers of its own.
enum class SimSeed : uint64_t { kPath = 1, kIncarnation = 2 };

[[nodiscard]] inline uint64_t sim_seed(uint64_t seed, SimSeed use, uint64_t which) noexcept {
  return Random::mix(Random::mix(seed, static_cast<uint64_t>(use)), which);
}

// The receiver of packets at an end of the network.
class SimHost {
 public:
  virtual ~SimHost() = default;
  // Takes a packet that node buffer->from sent.
  virtual void arrive(SimBuffer* buffer) = 0;
};

// Arguments are nodes, not ranks. The network owns the sources of the schedule that follow those of the nodes.
class SimNetwork {
 public:
  virtual ~SimNetwork() = default;

  // Returns whether there is a path from `from` to `to`.
  [[nodiscard]] virtual bool joined(unsigned from, unsigned to) const noexcept = 0;
  // Returns the node after `node` (`next`) or before it in the ring. SimNode uses this if its exchange names a
  // neighbour that `node` is not joined to. kNobody: there is no such node.
  [[nodiscard]] virtual unsigned beside(unsigned node, bool next) const noexcept = 0;
  static constexpr unsigned kNobody = 0xffff;

  // Sends a copy of `packet`. Returns false if the caller must try again later. The two nodes must be joined.
  [[nodiscard]] virtual bool transmit(unsigned from, unsigned to, std::span<const uint8_t> packet) = 0;

  // Registers the host of a node. It must be called once for each node, in the order of their numbers.
  void add_host(SimHost& host) { hosts_.push_back(&host); }

  // Handles the events of this source that are due at the present time.
  virtual void fire(size_t source) = 0;
  // Called when no source has more events at the present time. Decides the order of packets that arrived at the same
  // instant.
  virtual void settle() {}

  // Return the path between two nodes, which must be joined. A switch creates a path when a packet or a fault first
  // needs it. Before that, find_path() returns null.
  [[nodiscard]] virtual SimPath& path(unsigned from, unsigned to) = 0;
  [[nodiscard]] virtual const SimPath* find_path(unsigned from, unsigned to) const noexcept = 0;
  virtual void each_path(const std::function<void(const SimPath&)>& scan) const = 0;
  virtual void set_faults(const Faults& faults) = 0;  // sets the faults of all paths
  // set_link() sets the model of one link in one direction, set_port() that of one port in both directions. They return
  // false if this network has no links, or no ports.
  [[nodiscard]] virtual bool set_link(unsigned from, unsigned to, const LinkModel& model) = 0;
  [[nodiscard]] virtual bool set_port(unsigned node, const LinkModel& model) = 0;

 protected:
  [[nodiscard]] SimHost& host(size_t node) const { return *hosts_[node]; }

 private:
  std::vector<SimHost*> hosts_;
};

}  // namespace gradlane
