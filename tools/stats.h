// stats.h - `gradlane stats`: what a running daemon does (main thread)
#pragma once

#include <string>

#include "tools/admin_client.h"

namespace gradlane {

struct StatsOptions {
  AdminPlace place;
  bool watch = false;
  std::string interval;  // seconds between looks; empty: 1
  bool json = false;
  bool all = false;  // counters, too
};

// Returns the exit status. Throws SetupError if nobody answers at the first look.
int run_stats(const StatsOptions& options);

}  // namespace gradlane
