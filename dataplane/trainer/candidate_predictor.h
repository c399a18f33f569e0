// candidate_predictor.h - the candidates of `auto` on this node, each a strategy and a codec, with predicted times
// (control thread)
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "client/abi.h"
#include "collectives/cost/calibration.h"
#include "config/config.h"

namespace gradlane {

// Returns the figures on which a node's predictions are based. They are from its calibration file or, if none is
// configured, the usual ones for its kind of port. Throws SetupError if the file is missing or makes no sense.
[[nodiscard]] Calibration figures_of(const NodeConfig& config);

// Returns one row for each allowed strategy and each codec whose error bound is known in advance, raw included.
// Strategies are in the order of the configuration. `mbps` is the rate of the slowest port in Mb/s, 0 if not known. It
// is used only if the calibration has no measured link.
[[nodiscard]] std::vector<gl_way_row> candidates_of(const NodeConfig& config, const Calibration& figures,
                                                    unsigned mbps);

// Returns the rows of the configuration's plan, as trainers read them.
[[nodiscard]] std::vector<gl_plan_row> plan_rows_of(const NodeConfig& config);

// The predictions for `auto` on this node.
class CandidatePredictor {
 public:
  // Throws SetupError if the configured calibration cannot be read. `mbps` returns the rate of the slowest port in
  // Mb/s; it may be empty.
  CandidatePredictor(const NodeConfig& config, std::function<unsigned()> mbps);
  // Returns the candidates with predictions for now. Ports may have come up since the last call, which changes the
  // rate.
  [[nodiscard]] std::vector<gl_way_row> ways() const;

 private:
  const NodeConfig& config_;
  const Calibration figures_;
  const std::function<unsigned()> mbps_;
};

}  // namespace gradlane
