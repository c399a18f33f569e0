// words.h - texts for parts of a trace (pure functions)
#pragma once

#include <string>

#include "collectives/trace_log.h"

namespace gradlane {

// Returns a text such as "all-reduce 1 MiB fixed:10".
[[nodiscard]] std::string operation_text(const TraceOperation& operation);
[[nodiscard]] std::string bytes_text(uint64_t bytes);
// Formats nanoseconds: "70 us", "10.1 ms", "2.5 s".
[[nodiscard]] std::string duration_text(double nanos);
// Returns "node 2", or "rank 5" if nodes have several ranks.
[[nodiscard]] std::string rank_text(unsigned rank, unsigned ranks_per_node);
// Returns one word for a cause, as columns and JSON have it (cause_name), or a phrase about `whom` (cause_text).
[[nodiscard]] const char* cause_name(TraceCause cause);
[[nodiscard]] std::string cause_text(TraceCause cause, const std::string& whom);

}  // namespace gradlane
