// chosen.h - what the library has chosen for an operation that was left to it, as the daemon tells it (main thread)
#pragma once

#include <string>

#include "tools/perf/report.h"

namespace gradlane {

// "fixed:10 by ring", of operations as those of the row by this rank; empty: the daemon does not say. `type` as its
// document names it.
[[nodiscard]] std::string chosen_of(const PerfRow& row, const std::string& type, unsigned rank, unsigned world);

}  // namespace gradlane
