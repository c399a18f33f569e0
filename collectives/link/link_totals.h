// link_totals.h - what a link has done since the start (plain data)
#pragma once

#include <cstdint>

#include "base/time.h"
#include "base/time_histogram.h"

namespace gradlane {

// In all sessions.
struct LinkTotals {
  uint64_t sent = 0;        // data packets, without those that were sent again:
  uint64_t resent = 0;      //   these
  uint64_t bytes = 0;       // of both, from the link header on
  Nanos full = 0;           // how long its window was full, so that what was to be sent had to wait
  uint64_t full_bytes = 0;  // of `bytes`: those that were sent meanwhile, so what the link carries is full_bytes / full
  RttHistogram rtt;         // of each acknowledgement, as it came
};

}  // namespace gradlane
