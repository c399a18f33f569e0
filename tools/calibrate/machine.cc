// machine.cc - description of this host, to find out whether a calibration is of another host
#include "tools/calibrate/machine.h"

#include "config/calibration_use.h"
#include "tools/version.h"

namespace gradlane {

CalibrationUse this_use() { return calibration_use(GRADLANE_RELEASE); }

}  // namespace gradlane
