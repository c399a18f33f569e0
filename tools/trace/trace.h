// trace.h - `gradlane trace`: where the time of operations goes, on all nodes of a ring (main thread)
#pragma once

#include <string>
#include <vector>

#include "tools/admin/client.h"

namespace gradlane {

struct TraceOptions {
  AdminPlace place;
  double seconds = 5;
  std::vector<std::string> spans;  // files of trainers
  std::string output;              // a file for Perfetto; "": none
  bool one = false;                // this node alone
  bool summary = false;            // the table only, no file
  bool json = false;               // the table as JSON
};

// Returns the exit status: 0; 3 nobody answers; 4 the trace is there, but of some nodes it broke off. Throws SetupError
// for wrong options, and a file that cannot be written.
int run_trace(const TraceOptions& options);

}  // namespace gradlane
