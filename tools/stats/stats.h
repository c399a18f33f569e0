// stats.h - `gradlane stats`: what a running daemon does (main thread)
#pragma once

#include <string>

#include "tools/admin/client.h"

namespace gradlane {

struct StatsOptions {
  AdminPlace place;
  bool watch = false;
  std::string interval;  // seconds between looks; empty: 1
  bool json = false;
  bool all = false;     // counters, too
  bool plan = false;    // what was chosen for operations, and nothing else
  bool freeze = false;  // the same as a file that a configuration's `plan` names
};

// What it ends with, for monitors; 2 is for wrong options.
enum StatsStatus {
  kStatsFine = 0,
  kStatsNoDaemon = 3,  // nobody answers
  kStatsRing = 4,      // the ring is not whole
  kStatsFailing = 5,   // the ring is whole, and operations have failed in the last minute
  kStatsKernel = 6,    // the kernel is not kept off an accelerator's ports
  // With `plan` and `freeze` none of 4 to 6.
  kStatsUnsettled = 7,  // there is nothing to freeze yet
};

// Returns the exit status; with `watch` 0 unless nobody answers at the first look. Throws SetupError for wrong options.
int run_stats(const StatsOptions& options);

}  // namespace gradlane
