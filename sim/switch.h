// switch.h - nodes around a simulated switch, with a port each: any node reaches any other
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/network.h"

namespace gradlane {

// Each node has one port, of the same rate both ways. Packets leave a node through its port one after the other, are at
// the switch half the delay after their last bit left (store and forward), and go into the queue of the port they are
// for, behind all others who are for the same one. What that queue has no room for is lost. They leave it at the rate
// of that port, and are there the other half of the delay later.
//
// A node's own queue, of the same length, loses nothing: transmit() is refused while it is full, as a card's ring does.
// Of packets that come to the switch at the same instant for the same port, that of the node goes first that is behind
// the one who went first last time: in a simulation many come at once, and the same ones would always be lost.
//
// Losses, duplicates, damage and delays happen between the sender and the switch, to each packet once. Each pair of
// nodes has dice of its own.
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
  void each_path(const std::function<void(const SimPath&)>& look) const override;
  void set_faults(const Faults& faults) override;
  [[nodiscard]] bool set_link(unsigned /*from*/, unsigned /*to*/, const LinkModel& /*model*/) override { return false; }
  [[nodiscard]] bool set_port(unsigned node, const LinkModel& model) override;

 private:
  struct Port {
    SimWire up;         // from the node to the switch
    SimWire down;       // and back
    unsigned turn = 0;  // node that goes first if several come for this port at once
  };
  // At the switch, at the present instant.
  struct Arrival {
    unsigned to;
    unsigned turn;  // 0: goes first
    size_t order;   // of those of one node
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
  std::vector<std::unique_ptr<SimPath>> paths_;  // from * nodes + to; null: nothing has been there yet
  std::vector<Arrival> arrivals_;
};

}  // namespace gradlane
