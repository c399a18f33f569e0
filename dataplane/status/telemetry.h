// telemetry.h - figures of running nodes for dpdk-telemetry.py (DPDK's telemetry thread reads what was looked at last)
#pragma once

#include <memory>
#include <span>

#include "dataplane/node/node.h"

namespace gradlane {

// Serves /gradlane/status, neighbours, pools, ports and ranks as long as it lives; the nodes live longer and stay where
// they are. One at a time.
class Telemetry {
 public:
  Telemetry(std::span<const std::unique_ptr<Node>> nodes, Nanos now);
  ~Telemetry();
  // From now on figures are those of `now`: to be called every 100 ms, after the control thread has tended the nodes.
  void look(Nanos now);
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

 private:
  const std::span<const std::unique_ptr<Node>> nodes_;
};

}  // namespace gradlane
