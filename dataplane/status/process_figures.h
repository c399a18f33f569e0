// process_figures.h - what a daemon's process knows of itself (control thread only)
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gradlane {

// Since the start.
struct ProcessFacts {
  std::string version;
  std::chrono::steady_clock::time_point started;
};

// Now.
struct ProcessFigures {
  std::string version;
  double uptime_s = 0;
  int pid = 0;
  uint64_t rss_kb = 0;  // in memory; 0: that cannot be known
};

[[nodiscard]] ProcessFigures process_figures(const ProcessFacts& facts);

}  // namespace gradlane
