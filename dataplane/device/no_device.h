// no_device.h - the error for a device that DPDK does not have, with advice (control thread only)
#pragma once

#include "base/error.h"
#include "config/config.h"

namespace gradlane {

// Returns the error for a device that DPDK could not make, with the cause and advice. EAL must run, and rte_dev_probe()
// has returned `result` or made no port.
[[nodiscard]] SetupError no_device(const PortConfig& config, int result);

}  // namespace gradlane
