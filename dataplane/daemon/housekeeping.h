// housekeeping.h - what the control thread does for the nodes of a process, round after round (control thread only)
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "dataplane/node/node.h"
#include "dataplane/status/job_watch.h"

namespace gradlane {

// Reads no clock, and does not wait: its owner does, for one of fds() to become readable, kStep at most, or kBusyStep
// while busy(). Then step(), and tend().
class Housekeeping {
 public:
  static constexpr Nanos kStep = 100 * kMillisecond;    // between looks at what no file descriptor tells
  static constexpr Nanos kBusyStep = 2 * kMillisecond;  // while lanes work on commands

  // `jobs`: one for each node. Both live longer and stay where they are.
  Housekeeping(std::span<const std::unique_ptr<Node>> nodes, std::span<const std::unique_ptr<JobWatch>> jobs)
      : nodes_(nodes), jobs_(jobs) {}

  [[nodiscard]] std::vector<int> fds() const;
  [[nodiscard]] bool busy() const;

  // Trainers that come, ask and go; who asks for figures; probes.
  void step(Nanos now);
  // Ports, the log, and what jobs have moved, if kStep has passed since the last time; true if so. Throws DeviceLost.
  bool tend(Nanos now);

 private:
  const std::span<const std::unique_ptr<Node>> nodes_;
  const std::span<const std::unique_ptr<JobWatch>> jobs_;
  Nanos tend_at_ = 0;
};

}  // namespace gradlane
