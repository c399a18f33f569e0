// link_totals.h - totals of a link since the start (plain data)
#pragma once

#include <cstdint>

#include "base/time.h"
#include "base/time_histogram.h"

namespace gradlane {

// The totals include all sessions.
struct LinkTotals {
  uint64_t sent = 0;        // data packets, without retransmissions
  uint64_t resent = 0;      // retransmissions of data packets
  uint64_t bytes = 0;       // bytes of both, from the link header on
  Nanos full = 0;           // time during which the window was full, so that data had to wait
  uint64_t full_bytes = 0;  // part of `bytes` sent during that time; the link's rate is full_bytes / full
  RttHistogram rtt;         // round-trip time at each acknowledgement
};

}  // namespace gradlane
