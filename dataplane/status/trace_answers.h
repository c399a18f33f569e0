// trace_answers.h - answers to requests of `gradlane trace` (control thread only)
#pragma once

#include <string>

#include "dataplane/watch/admin_socket.h"

namespace gradlane {

class Node;

// Answers a request for traces:
//
// - "trace start" begins a trace: {"trace": its number}, or {"trace": 0} if another client takes one. The trace ends if
//   its client does not ask for a time of NodeTrace::kLease.
// - "trace fetch NUMBER" returns the new records: {"lanes": [{"rank", "lane", "dropped", "skipped", "words": [...]}],
//   "more", "on"}. collectives/trace_log.h explains the words. "on": the trace had not ended before this request.
// - "trace stop NUMBER" ends the trace. The answer has the form of that to fetch, and is sent when workers have seen
//   the end.
//
// Each of these answers also describes the node and its clocks: "node", "nodes", "ranks_per_node", "boot", "clock_ns",
// "monotonic_ns" and "wall_ns". "clock_ns" is the clock of records. "monotonic_ns" and "wall_ns" are clocks of the
// kernel at the same moment.
[[nodiscard]] AdminAnswer answer_trace(Node& node, const std::string& request, Nanos now);

}  // namespace gradlane
