// top.h - `gradlane top`: a live view of a node or of a ring (main thread)
#pragma once

#include "tools/admin/client.h"

namespace gradlane {

struct TopOptions {
  AdminPlace place;
  double interval = 1;  // seconds between two views
  bool one = false;     // this node alone
  bool once = false;    // print one plain table, and exit
  bool json = false;    // print JSON instead of the table, and exit
};

// Returns the exit status: 0, or 3 if nobody answers at first. Throws SetupError for wrong options.
int run_top(const TopOptions& options);

}  // namespace gradlane
