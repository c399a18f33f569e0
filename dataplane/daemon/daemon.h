// daemon.h - gradlaned: nodes of one process, from start to orderly end
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace gradlane {

// Runs until SIGTERM or SIGINT and returns 0, or until an interface or a card goes away, and returns kDeviceLostStatus.
// `serving`: processes that it is for, so that it ends like that, too, when the last one of these has ended; none: they
// do not count. `version` is what it says of itself. Throws SetupError if it cannot start. One call per process, which
// then ends by std::_Exit(): DPDK's threads still run, and may look after links that their other side leaves.
int run_daemon(const std::vector<NodeConfig>& nodes, std::span<const pid_t> serving, const std::string& version);

}  // namespace gradlane
