// cables.h - nodes in a ring, each with links to the next node and to the previous one
#pragma once

#include <vector>

#include "sim/network.h"

namespace gradlane {

// Node i is joined to nodes i + 1 and i - 1 (modulo the number of nodes), by one link in each direction. If there are
// only two nodes, one link in each direction joins them. A link drops packets for which its queue has no space.
class SimCables final : public SimNetwork {
 public:
  SimCables(SimCore& core, unsigned nodes, uint64_t seed, const LinkModel& model, const Faults& faults);

  [[nodiscard]] static size_t sources(unsigned nodes) noexcept;

  [[nodiscard]] bool joined(unsigned from, unsigned to) const noexcept override;
  [[nodiscard]] unsigned beside(unsigned node, bool next) const noexcept override;
  [[nodiscard]] bool transmit(unsigned from, unsigned to, std::span<const uint8_t> packet) override;
  void fire(size_t source) override;
  [[nodiscard]] SimPath& path(unsigned from, unsigned to) override { return links_[link_index(from, to)]; }
  [[nodiscard]] const SimPath* find_path(unsigned from, unsigned to) const noexcept override;
  void each_path(const std::function<void(const SimPath&)>& scan) const override;
  void set_faults(const Faults& faults) override;
  [[nodiscard]] bool set_link(unsigned from, unsigned to, const LinkModel& model) override;
  [[nodiscard]] bool set_port(unsigned /*node*/, const LinkModel& /*model*/) override { return false; }

 private:
  [[nodiscard]] size_t link_index(unsigned from, unsigned to) const noexcept;

  SimCore& core_;
  unsigned nodes_;
  std::vector<SimLink> links_;
};

}  // namespace gradlane
