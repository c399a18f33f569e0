// recording.h - records of a trace from the daemons of a ring, as plain data
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "collectives/trace_log.h"
#include "tools/trace/clocks.h"

namespace gradlane {

// Records of one rank on one lane. Times are by the daemon's clock until unite() converts them.
struct LaneRecording {
  unsigned rank = 0;
  unsigned lane = 0;
  uint64_t dropped = 0;  // records that the daemon has dropped
  uint64_t skipped = 0;  // operations that the daemon has not recorded
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
  std::string path;     // path of its admin socket
  std::string missing;  // reason why its records end early, or why there are none; "": nothing is missing
  std::string boot;
  std::vector<ClockReading> readings;
  ClockFit clock;
  std::vector<LaneRecording> lanes;
};

// Converts all times to ns on one clock, from a moment shortly before the first of them. Times of 0 stay 0. Returns
// that moment by this machine's monotonic clock; 0 if there are no times.
int64_t unite(std::vector<NodeRecording>& nodes);

// Adds an answer of the daemon. `asked` and `answered`: times of request and answer by this machine's monotonic clock.
// Throws SetupError if the answer has another format or is damaged.
void add_answer(NodeRecording& node, const nlohmann::json& answer, int64_t asked, int64_t answered);

}  // namespace gradlane
