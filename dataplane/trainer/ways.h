// ways.h - what `auto` may choose from on this node: strategies and codecs, and what each is thought to take (control
// thread)
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "client/abi.h"
#include "collectives/plan/calibration.h"
#include "config/config.h"

namespace gradlane {

// The figures that a node's predictions are made with: those of its calibration, else the usual ones of its kind of
// port. Throws SetupError if there is no such file, or it makes no sense.
[[nodiscard]] Calibration figures_of(const NodeConfig& config);

// One row for each strategy that is allowed and each codec of which a bound can be said in advance, raw among them; the
// strategies in the order of the configuration. `mbps`: of the slowest port, where the calibration has measured no
// link; 0: not known.
[[nodiscard]] std::vector<gl_way_row> ways_of(const NodeConfig& config, const Calibration& figures, unsigned mbps);

// The rows of the configuration's plan, as trainers are told of them.
[[nodiscard]] std::vector<gl_plan_row> plan_rows_of(const NodeConfig& config);

// What `auto` has to go by, on this node.
class Planning {
 public:
  // Throws SetupError: the calibration of the configuration cannot be read. `mbps`: of the slowest port; may be empty.
  Planning(const NodeConfig& config, std::function<unsigned()> mbps);
  // As of now: ports may have come up.
  [[nodiscard]] std::vector<gl_way_row> ways() const;

 private:
  const NodeConfig& config_;
  const Calibration figures_;
  const std::function<unsigned()> mbps_;
};

}  // namespace gradlane
