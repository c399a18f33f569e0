// stats.h - an accelerator's document as text (no I/O)
#pragma once

#include <vector>

#include "tools/stats/parts.h"

namespace gradlane {

[[nodiscard]] Lines accelerator_lines(const StatsLooks& looks, bool all);

// Its counters in the order in which they are explained.
struct CounterText {
  const char* name;
  const char* help;
};
[[nodiscard]] const std::vector<CounterText>& accelerator_counters();

}  // namespace gradlane
