// host_speed.h - costs of codecs, the exchange and memory on this host, measured within seconds (no daemon)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/cost/calibration.h"

namespace gradlane {

// Function that is called before each measurement, to tell the user what comes next.
using Progress = std::function<void(const std::string& what)>;

// Measures and fills in `codecs`, the exchange's part of `packets`, and `memory`. It takes some seconds. The codecs are
// those of usual_calibration(). They keep its widths (bytes per element), because both use the same data.
void measure_host(Calibration& calibration, const Progress& progress);

// Returns Calibration::contention for that number of lanes, by running codecs on one core and on that many. Throws
// SetupError if there is not enough memory for it, or not enough threads.
[[nodiscard]] double measure_contention(unsigned lanes);

}  // namespace gradlane
