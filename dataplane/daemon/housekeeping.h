// housekeeping.h - the recurring work of the control thread for the nodes of a process (control thread only)
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "dataplane/node/node.h"
#include "dataplane/status/job_watch.h"

namespace gradlane {

// Reads no clock and does not block. The caller polls fds() for at most kStep (kBusyStep while busy()), then calls
// step() and maintain().
class Housekeeping {
 public:
  // period of maintain(), for work that no file descriptor announces
  static constexpr Nanos kStep = 100 * kMillisecond;
  static constexpr Nanos kBusyStep = 2 * kMillisecond;  // period while lanes work on commands

  // `jobs`: one for each node. `nodes` and `jobs` must outlive this object, and must not move.
  Housekeeping(std::span<const std::unique_ptr<Node>> nodes, std::span<const std::unique_ptr<JobWatch>> jobs)
      : nodes_(nodes), jobs_(jobs) {}

  [[nodiscard]] std::vector<int> fds() const;
  [[nodiscard]] bool busy() const;

  // Handles requests of trainers, admin clients and Prometheus, and probes.
  void step(Nanos now);
  // Starts ports, writes the log, and records the traffic of jobs, once per kStep. Returns false if it has done
  // nothing, because kStep has not passed. Throws DeviceLost.
  bool maintain(Nanos now);

 private:
  const std::span<const std::unique_ptr<Node>> nodes_;
  const std::span<const std::unique_ptr<JobWatch>> jobs_;
  Nanos tend_at_ = 0;
};

}  // namespace gradlane
