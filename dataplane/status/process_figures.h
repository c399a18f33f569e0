// process_figures.h - figures of a daemon's process (control thread only)
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gradlane {

// Facts that stay the same from the start.
struct ProcessFacts {
  std::string version;
  std::chrono::steady_clock::time_point started;
};

// Figures at one moment.
struct ProcessFigures {
  std::string version;
  double uptime_s = 0;
  int pid = 0;
  uint64_t rss_kb = 0;  // resident memory; 0: not known
};

[[nodiscard]] ProcessFigures process_figures(const ProcessFacts& facts);

}  // namespace gradlane
