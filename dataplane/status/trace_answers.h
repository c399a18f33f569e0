// trace_answers.h - what `gradlane trace` asks a node, and its answers (control thread only)
#pragma once

#include <string>

#include "dataplane/watch/admin_socket.h"

namespace gradlane {

class Node;

// "trace start": a trace begins, {"trace": its number}, or {"trace": 0}: somebody else takes one. It ends by itself if
// its client does not ask for NodeTrace::kLease.
// "trace fetch NUMBER": what has come since, {"lanes": [{"rank", "lane", "dropped", "skipped", "words": [...]}],
// "more", "on"}; collectives/trace_log.h explains the words. "on": the trace had not ended before this was asked.
// "trace stop NUMBER": ends it; the answer comes when workers have seen that, and is that of fetch. With all of them
// come who this is and its clock: "node", "nodes", "ranks_per_node", "boot", "clock_ns", "monotonic_ns" and "wall_ns",
// the clock of records and those of the kernel at the same moment.
[[nodiscard]] AdminAnswer answer_trace(Node& node, const std::string& request, Nanos now);

}  // namespace gradlane
