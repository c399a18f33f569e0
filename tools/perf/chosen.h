// chosen.h - the library's choice for operations that leave codec or strategy to it, as the daemon reports it (main
// thread)
#pragma once

#include <string>

#include "tools/perf/report.h"

namespace gradlane {

// Returns the choice for this rank's operations that are like those of the row: "fixed:10 by ring". It is empty if the
// daemon does not report it. `type`: name of the element type in the daemon's document.
[[nodiscard]] std::string chosen_of(const PerfRow& row, const std::string& type, unsigned rank, unsigned world);

}  // namespace gradlane
