// daemon.h - gradlaned: nodes of one process, from start to orderly end
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace gradlane {

// Runs until SIGTERM or SIGINT and returns 0, or until an interface or a card goes away, and returns kDeviceLostStatus.
// `version` is what it says of itself. Throws SetupError if it cannot start. One call per process, which then ends by
// std::_Exit(): DPDK's threads still run, and may look after links that their other side leaves.
int run_daemon(const std::vector<NodeConfig>& nodes, const std::string& version);

}  // namespace gradlane
