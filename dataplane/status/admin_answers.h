// admin_answers.h - what people and tools ask a node, and its answers (control thread only)
#pragma once

#include <string>

#include "base/time.h"
#include "dataplane/status/process_figures.h"
#include "dataplane/watch/admin_socket.h"

namespace gradlane {

class JobWatch;
class Node;

// The document that docs/stats.md describes, in one line.
[[nodiscard]] std::string stats_text(const Node& node, const JobWatch& job, const ProcessFacts& process, Nanos now);

// The answer to a line that came by the admin socket: "stats", "probe", "probe MILLISECONDS", "worth", "worth HIDDEN",
// that is microseconds in exchange in which a trainer did something else; and those of trace_answers.h.
[[nodiscard]] AdminAnswer answer_admin(Node& node, const JobWatch& job, const ProcessFacts& process,
                                       const std::string& request, Nanos (*clock)() noexcept);

}  // namespace gradlane
