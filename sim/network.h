// network.h - what joins the nodes of a simulated network: the interface of cables and of a switch
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

// What the seed is used for, so that no two uses have the same random numbers.
enum class SimSeed : uint64_t { kPath = 1, kIncarnation = 2 };

[[nodiscard]] inline uint64_t sim_seed(uint64_t seed, SimSeed use, uint64_t which) noexcept {
  return Random::mix(Random::mix(seed, static_cast<uint64_t>(use)), which);
}

// Where packets come out.
class SimHost {
 public:
  virtual ~SimHost() = default;
  // Takes a packet from node buffer->from.
  virtual void arrive(SimBuffer* buffer) = 0;
};

// Nodes, not ranks. Sources of the schedule beyond the nodes' are its own.
class SimNetwork {
 public:
  virtual ~SimNetwork() = default;

  // There is a way from one to the other.
  [[nodiscard]] virtual bool joined(unsigned from, unsigned to) const noexcept = 0;
  // Who is next to a node, or before it, where that is all that its exchange can say; kNobody: nobody is.
  [[nodiscard]] virtual unsigned beside(unsigned node, bool next) const noexcept = 0;
  static constexpr unsigned kNobody = 0xffff;

  // Takes a copy of `packet`, or returns false: try again later. The two are joined.
  [[nodiscard]] virtual bool transmit(unsigned from, unsigned to, std::span<const uint8_t> packet) = 0;

  // To be called once for each node, in their order.
  void add_host(SimHost& host) { hosts_.push_back(&host); }

  // Lets happen what a source of events has at the present time.
  virtual void fire(size_t source) = 0;
  // Nothing more of the kind is due at this time: decides between those that came at once.
  virtual void settle() {}

  // The two are joined. A path that no packet and no fault has needed yet may not be there: null.
  [[nodiscard]] virtual SimPath& path(unsigned from, unsigned to) = 0;
  [[nodiscard]] virtual const SimPath* find_path(unsigned from, unsigned to) const noexcept = 0;
  virtual void each_path(const std::function<void(const SimPath&)>& look) const = 0;
  virtual void set_faults(const Faults& faults) = 0;  // of all paths
  // Of one cable; false: it has none. Of one port, both ways; false: it has none.
  [[nodiscard]] virtual bool set_link(unsigned from, unsigned to, const LinkModel& model) = 0;
  [[nodiscard]] virtual bool set_port(unsigned node, const LinkModel& model) = 0;

 protected:
  [[nodiscard]] SimHost& host(size_t node) const { return *hosts_[node]; }

 private:
  std::vector<SimHost*> hosts_;
};

}  // namespace gradlane
