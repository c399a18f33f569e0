// stats.h - `gradlane stats`: figures of a running daemon (main thread)
#pragma once

#include <string>

#include "tools/admin/client.h"

namespace gradlane {

struct StatsOptions {
  AdminPlace place;
  bool watch = false;
  std::string interval;  // seconds between two requests; 1 if empty
  bool json = false;
  bool all = false;     // print counters, too
  bool plan = false;    // print only the choices that were made for operations
  bool freeze = false;  // print these choices as a file for a configuration's `plan`
};

// Exit statuses, for monitors; 2 is for wrong options.
enum StatsStatus {
  kStatsFine = 0,
  kStatsNoDaemon = 3,  // no daemon answers
  kStatsRing = 4,      // the ring is not ready
  kStatsFailing = 5,   // the ring is ready, but operations have failed in the last minute
  kStatsKernel = 6,    // the kernel also receives packets at an accelerator's ports
  // With `plan` or `freeze`, the status is never 4 to 6.
  kStatsUnsettled = 7,  // there is nothing to freeze yet
};

// Returns the exit status. With `watch` it is 0, or 3 if no daemon answers the first request. Throws SetupError for
// wrong options.
int run_stats(const StatsOptions& options);

}  // namespace gradlane
