// machine.h - who asks for a plan: this host, for calibrations that are of another one
#pragma once

#include "collectives/plan/calibration.h"

namespace gradlane {

// Host name, CPU model as /proc/cpuinfo has it, the instruction set in use, the version of gradlane, and the time.
[[nodiscard]] CalibrationUse this_use();

}  // namespace gradlane
