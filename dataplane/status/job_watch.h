// job_watch.h - the figures of the latest job on a node (control thread only)
#pragma once

#include <optional>

#include "collectives/cost/calibration.h"
#include "dataplane/status/node_figures.h"
#include "dataplane/status/savings.h"

namespace gradlane {

class Node;

// Keeps the figures of jobs apart. A job begins when trainers come to a node that had none. Its figures stay until the
// next job begins. A job that is shorter than the time between two calls of look() is counted as a part of the previous
// job. So is a job that begins within that time after the end of the previous one.
class JobWatch {
 public:
  // Throws SetupError if the calibration of the node's configuration cannot be read.
  explicit JobWatch(const Node& node);

  void look(Nanos now);  // called every 100 ms
  [[nodiscard]] Savings savings(const NodeFigures& now) const;
  [[nodiscard]] Savings total(const NodeFigures& now) const;  // savings of all jobs since the daemon started

 private:
  static constexpr unsigned kSettled = 3;  // number of calls of look() until workers have published their last figures

  const Node& node_;
  const Calibration figures_;
  std::optional<NodeFigures> before_;  // figures before the job; none: it is the first one
  std::optional<NodeFigures> idle_;    // latest figures without trainers
  unsigned idle_looks_ = 0;
  bool attached_ = false;
  bool chosen_ = false;       // the job's trainers have chosen a codec that rounds
  bool ever_chosen_ = false;  // trainers of some job have done so
};

}  // namespace gradlane
