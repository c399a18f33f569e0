// calibration_use.h - who asks for a calibration: this host, now (set-up only)
#pragma once

#include <string>

#include "collectives/plan/calibration.h"

namespace gradlane {

// `program`: the version of the program that asks.
[[nodiscard]] CalibrationUse calibration_use(const std::string& program);

}  // namespace gradlane
