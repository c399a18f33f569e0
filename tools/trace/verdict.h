// verdict.h - who holds the ring up, from a summary (pure function)
#pragma once

#include <string>

#include "tools/trace/summary.h"

namespace gradlane {

// One sentence; held_up: it names somebody.
[[nodiscard]] std::string verdict_of(const TraceSummary& summary, bool& held_up);

}  // namespace gradlane
