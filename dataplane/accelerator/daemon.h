// daemon.h - gradlaned in accelerator mode, from its start to an orderly end
#pragma once

#include <cstddef>
#include <string>

#include "config/accelerator.h"

namespace gradlane {

// Runs until SIGTERM or SIGINT and returns 0. If an interface or a card disappears, returns kDeviceLostStatus. The
// daemon reports `version` as its own. `removes_log`: the caller removes the log and its folder afterwards. Throws
// SetupError if it cannot start. Call it only once per process. The process must then end by std::_Exit(), as with
// run_daemon().
int run_accelerator(const AcceleratorConfig& config, const std::string& version, bool removes_log);

// Returns the memory in bytes that the daemon's packet buffers need.
[[nodiscard]] size_t accelerator_packet_bytes(const AcceleratorConfig& config);

}  // namespace gradlane
