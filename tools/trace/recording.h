// recording.h - what the daemons of a ring have told of a trace, as plain data
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "collectives/trace_log.h"
#include "tools/trace/clocks.h"

namespace gradlane {

// One rank on one lane. Times are still those of the daemon's clock.
struct LaneRecording {
  unsigned rank = 0;
  unsigned lane = 0;
  uint64_t dropped = 0;  // records
  uint64_t skipped = 0;  // operations
  std::vector<TraceOperation> operations;
  std::vector<TraceHop> hops;
  std::vector<TraceWait> waits;
  std::vector<TracePacket> packets;
  std::vector<TraceLink> links;
};

struct NodeRecording {
  unsigned node = 0;
  unsigned nodes = 0;
  unsigned ranks_per_node = 1;
  std::string path;     // of its admin socket
  std::string missing;  // why its records end early, or there are none; "": all is there
  std::string boot;
  std::vector<ClockReading> readings;
  ClockFit clock;
  std::vector<LaneRecording> lanes;
};

// All times become those of one clock, in ns from a little before the first of them, which is returned as a time of
// that clock; 0: there are none. Those that are 0 stay 0.
int64_t unite(std::vector<NodeRecording>& nodes);

// An answer of the daemon, asked and answered at these times of this machine's monotonic clock. Throws SetupError if it
// is of another format.
void add_answer(NodeRecording& node, const nlohmann::json& answer, int64_t asked, int64_t answered);

}  // namespace gradlane
