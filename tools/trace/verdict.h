// verdict.h - what delays the ring, from a summary (pure function)
#pragma once

#include <string>

#include "tools/trace/summary.h"

namespace gradlane {

// Returns one sentence. Sets held_up: whether the sentence names a cause of delay.
[[nodiscard]] std::string verdict_of(const TraceSummary& summary, bool& held_up);

}  // namespace gradlane
