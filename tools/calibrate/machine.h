// machine.h - description of this host, to find out whether a calibration is of another host
#pragma once

#include "collectives/cost/calibration.h"

namespace gradlane {

// Returns the host name, the CPU model as /proc/cpuinfo has it, the instruction set in use, gradlane's version, and the
// time.
[[nodiscard]] CalibrationUse this_use();

}  // namespace gradlane
