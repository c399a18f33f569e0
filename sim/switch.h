// switch.h - nodes around a simulated switch, each with a port: any node reaches any other
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/network.h"

namespace gradlane {

// Each node has one port, with the same rate in both directions. Packets leave a node through its port one after the
// other. They reach the switch half of the delay after their last bit left (store and forward). The switch puts each
// packet at the end of the queue of its destination port, and drops it if that queue has no space. Packets leave the
// queue at the rate of that port. They reach the node after the other half of the delay.
//
// A node's own queue has the same length and loses nothing: while it is full, transmit() returns false, as if the ring
// of a NIC were full. Packets for one port may reach the switch at the same instant. Then the nodes take turns: the
// first one is the node after the one that was first the previous time. In a simulation such ties are frequent, and
// without turns the same nodes would always lose their packets.
//
// Losses, duplicates, corruption and delays happen between the sender and the switch, once per packet. Each pair of
// nodes has random numbers of its own.
class SimSwitch final : public SimNetwork {
 public:
  SimSwitch(SimCore& core, unsigned nodes, uint64_t seed, const LinkModel& model, const Faults& faults);

  [[nodiscard]] static size_t sources(unsigned nodes) noexcept { return 2 * size_t{nodes}; }

  [[nodiscard]] bool joined(unsigned from, unsigned to) const noexcept override;
  [[nodiscard]] unsigned beside(unsigned /*node*/, bool /*next*/) const noexcept override { return kNobody; }
  [[nodiscard]] bool transmit(unsigned from, unsigned to, std::span<const uint8_t> packet) override;
  void fire(size_t source) override;
  void settle() override;
  [[nodiscard]] SimPath& path(unsigned from, unsigned to) override;
  [[nodiscard]] const SimPath* find_path(unsigned from, unsigned to) const noexcept override;
  void each_path(const std::function<void(const SimPath&)>& scan) const override;
  void set_faults(const Faults& faults) override;
  [[nodiscard]] bool set_link(unsigned /*from*/, unsigned /*to*/, const LinkModel& /*model*/) override { return false; }
  [[nodiscard]] bool set_port(unsigned node, const LinkModel& model) override;

 private:
  struct Port {
    SimWire up;    // wire from the node to the switch
    SimWire down;  // wire from the switch to the node
    // node whose packet goes first if packets of several nodes reach the switch for this port at once
    unsigned turn = 0;
  };
  // A packet that reaches the switch at the present instant.
  struct Arrival {
    unsigned to;
    unsigned turn;  // 0: goes first
    size_t order;   // order of arrival among packets of one node
    SimBuffer* buffer;
  };

  [[nodiscard]] size_t up_source(unsigned node) const noexcept { return ports_.size() + node; }
  [[nodiscard]] size_t down_source(unsigned node) const noexcept { return 2 * ports_.size() + node; }
  void set_earlier(size_t source, Nanos due) noexcept;
  void forward(SimBuffer* buffer) noexcept;

  SimCore& core_;
  uint64_t seed_;
  Faults faults_;
  std::vector<Port> ports_;
  // Indexed by from * nodes + to. Null: no packet and no fault has needed the path yet.
  std::vector<std::unique_ptr<SimPath>> paths_;
  std::vector<Arrival> arrivals_;
};

}  // namespace gradlane
