// machine.cc - who asks for a plan: this host
#include "tools/calibrate/machine.h"

#include "config/calibration_use.h"
#include "tools/version.h"

namespace gradlane {

CalibrationUse this_use() { return calibration_use(GRADLANE_RELEASE); }

}  // namespace gradlane
