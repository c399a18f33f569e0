// trace.h - `gradlane trace`: where the time of operations goes, on all nodes of a ring (main thread)
#pragma once

#include <string>
#include <vector>

#include "tools/admin/client.h"

namespace gradlane {

struct TraceOptions {
  AdminPlace place;
  double seconds = 5;
  std::vector<std::string> spans;  // files that trainers have written
  std::string output;              // file for Perfetto; "": none
  bool one = false;                // this node alone
  bool summary = false;            // print the table only, and write no file
  bool json = false;               // print the table as JSON
};

// Returns the exit status: 0; 3 if no daemon answers or another trace is running; 4 if records of some nodes end early.
// Throws SetupError for wrong options, and if a file cannot be written.
int run_trace(const TraceOptions& options);

}  // namespace gradlane
