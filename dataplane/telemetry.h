// telemetry.h - figures of running nodes for dpdk-telemetry.py (DPDK's telemetry thread reads snapshots)
#pragma once

#include <memory>
#include <span>

#include "dataplane/node.h"

namespace gradlane {

// Registers /gradlane/ports and /gradlane/ranks. The nodes stay where they are until forget_telemetry().
void serve_telemetry(std::span<const std::unique_ptr<Node>> nodes);
void forget_telemetry() noexcept;

}  // namespace gradlane
