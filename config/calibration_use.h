// calibration_use.h - the host that uses a calibration, and the time (set-up only)
#pragma once

#include <string>

#include "collectives/cost/calibration.h"

namespace gradlane {

// Returns this host's name, CPU and ISA, and the current time. `program` is the version of the program that asks.
[[nodiscard]] CalibrationUse calibration_use(const std::string& program);

}  // namespace gradlane
