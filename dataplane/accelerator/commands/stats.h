// stats.h - an accelerator's document as text (no I/O)
#pragma once

#include <vector>

#include "tools/stats/parts.h"

namespace gradlane {

[[nodiscard]] Lines accelerator_lines(const StatsLooks& looks, bool all);

// Name and help text of a counter. accelerator_counters() returns those of the engine, of damaged bundles and of
// streams.
struct CounterText {
  const char* name;
  const char* help;
};
[[nodiscard]] const std::vector<CounterText>& accelerator_counters();

}  // namespace gradlane
