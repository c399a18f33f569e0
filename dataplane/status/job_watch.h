// job_watch.h - what the latest job on a node has moved (control thread only)
#pragma once

#include <optional>

#include "collectives/plan/calibration.h"
#include "dataplane/status/node_figures.h"
#include "dataplane/status/worth.h"

namespace gradlane {

class Node;

// A job begins when trainers come to a node that had none, and its figures stand until the next one does. One that is
// shorter than the time between two looks, or begins as soon after the one before, is counted with that.
class JobWatch {
 public:
  // Throws SetupError: the calibration of the node's configuration cannot be read.
  explicit JobWatch(const Node& node);

  void look(Nanos now);  // every 100 ms
  [[nodiscard]] Worth worth(const NodeFigures& now) const;
  [[nodiscard]] Worth total(const NodeFigures& now) const;  // of all jobs since the daemon started

 private:
  static constexpr unsigned kSettled = 3;  // looks until workers have published their last figures

  const Node& node_;
  const Calibration figures_;
  std::optional<NodeFigures> before_;  // the job; none: it is the first one
  std::optional<NodeFigures> idle_;    // when there was no trainer
  unsigned idle_looks_ = 0;
  bool attached_ = false;
  bool chosen_ = false;       // by the job's trainers,
  bool ever_chosen_ = false;  // by any
};

}  // namespace gradlane
