// table.h - the daemon's document as text: totals from one document, or rates from two (no I/O)
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradlane {

// Returns the lines of a table. Rates are between `before` and `now`, which are `seconds` apart. If `before` is null,
// there are totals only. Missing fields show as "-".
[[nodiscard]] std::vector<std::string> stats_lines(const nlohmann::json& now, const nlohmann::json* before,
                                                   double seconds, bool all);

// Returns the exit status of `gradlane stats` after it has printed this document: a StatsStatus.
[[nodiscard]] int stats_status(const nlohmann::json& document);

// Returns the description of a counter; "" for a counter that this program does not know.
[[nodiscard]] const char* counter_text(const std::string& name);

}  // namespace gradlane
