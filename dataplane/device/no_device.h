// no_device.h - why DPDK has no device, in words that say what to do (control thread only)
#pragma once

#include "base/error.h"
#include "config/config.h"

namespace gradlane {

// Once EAL runs, and rte_dev_probe() has answered with `result` or made no port.
[[nodiscard]] SetupError no_device(const PortConfig& config, int result);

}  // namespace gradlane
