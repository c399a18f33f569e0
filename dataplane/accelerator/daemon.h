// daemon.h - gradlaned as an accelerator, from start to orderly end
#pragma once

#include <cstddef>
#include <string>

#include "config/accelerator.h"

namespace gradlane {

// Runs until SIGTERM or SIGINT and returns 0, or until an interface or a card goes away, and returns kDeviceLostStatus.
// `version` is what it says of itself. Throws SetupError if it cannot start. One call per process, which then ends by
// std::_Exit(), as with run_daemon().
int run_accelerator(const AcceleratorConfig& config, const std::string& version);

// What its packet buffers need.
[[nodiscard]] size_t accelerator_packet_bytes(const AcceleratorConfig& config);

}  // namespace gradlane
