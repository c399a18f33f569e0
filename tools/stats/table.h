// table.h - the daemon's document as text: from one look, or two for rates (no I/O)
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradlane {

// The lines of a table. Rates are between `before` and `now`, which are `seconds` apart; null: totals only. What the
// document lacks shows as "-".
[[nodiscard]] std::vector<std::string> stats_lines(const nlohmann::json& now, const nlohmann::json* before,
                                                   double seconds, bool all);

// What `gradlane stats` ends with, having printed this: a StatsStatus.
[[nodiscard]] int stats_status(const nlohmann::json& document);

// What a counter counts; "" for one that this program does not know.
[[nodiscard]] const char* counter_text(const std::string& name);

}  // namespace gradlane
