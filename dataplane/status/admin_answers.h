// admin_answers.h - answers to requests that people and tools send to a node (control thread only)
#pragma once

#include <string>

#include "base/time.h"
#include "dataplane/status/process_figures.h"
#include "dataplane/watch/admin_socket.h"

namespace gradlane {

class JobWatch;
class Node;

// Returns the document of `gradlane stats --json`, in one line.
[[nodiscard]] std::string stats_text(const Node& node, const JobWatch& job, const ProcessFacts& process, Nanos now);

// Answers a line from the admin socket: "stats", "probe", "probe MILLISECONDS", "worth", "worth HIDDEN", "rotate
// SECONDS" with a key file, or a request of trace_answers.h. HIDDEN is the part of the time in exchange, in
// microseconds, in which a trainer did something else. SECONDS is the time for which the key before is still accepted.
[[nodiscard]] AdminAnswer answer_admin(Node& node, const JobWatch& job, const ProcessFacts& process,
                                       const AdminRequest& from, Nanos (*clock)() noexcept);

}  // namespace gradlane
