// words.h - what parts of a trace are called (pure functions)
#pragma once

#include <string>

#include "collectives/trace_log.h"

namespace gradlane {

// "all-reduce 1 MiB fixed:10"
[[nodiscard]] std::string operation_text(const TraceOperation& operation);
[[nodiscard]] std::string bytes_text(uint64_t bytes);
// Of nanoseconds: "70 us", "10.1 ms", "2.5 s".
[[nodiscard]] std::string duration_text(double nanos);
// "node 2", or "rank 5" where nodes have several.
[[nodiscard]] std::string rank_text(unsigned rank, unsigned ranks_per_node);
// Of a cause: one word, as columns and JSON have it; and a sentence about whom.
[[nodiscard]] const char* cause_name(TraceCause cause);
[[nodiscard]] std::string cause_text(TraceCause cause, const std::string& whom);

}  // namespace gradlane
