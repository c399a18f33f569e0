// host_speed.h - what codecs, the exchange and memory cost on this host, measured in seconds (no daemon)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/plan/calibration.h"

namespace gradlane {

// What is about to be measured, for whoever waits.
using Progress = std::function<void(const std::string& what)>;

// Fills in codecs (all that usual_calibration() has, whose widths stay: the data is the same), the exchange's share of
// packets, and memory. Some seconds.
void measure_host(Calibration& calibration, const Progress& progress);

// Calibration::contention of so many lanes: codecs on one core and on so many. Throws SetupError if there is no memory,
// or no threads, for it.
[[nodiscard]] double measure_contention(unsigned lanes);

}  // namespace gradlane
