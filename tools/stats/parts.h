// parts.h - reads figures from a document in which any field may be missing, and formats them (no I/O)
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradlane {

using Lines = std::vector<std::string>;

// Two documents of a daemon to compare, `seconds` apart. `before` may be null.
struct StatsLooks {
  const nlohmann::json& now;
  const nlohmann::json* before;
  double seconds;
  [[nodiscard]] bool rates() const { return before != nullptr && seconds > 0; }
};

// ---- Reading: missing values are null, "-" or 0

[[nodiscard]] const nlohmann::json& at(const nlohmann::json& object, const char* key);
[[nodiscard]] const nlohmann::json* member(const nlohmann::json* object, const char* key);
[[nodiscard]] const nlohmann::json* element(const nlohmann::json* array, size_t i);
[[nodiscard]] std::string text(const nlohmann::json& value);
[[nodiscard]] double number(const nlohmann::json& value);   // clamped to +-1e18
[[nodiscard]] unsigned whole(const nlohmann::json& value);  // rounded, and clamped to the range of unsigned
[[nodiscard]] double counter(const nlohmann::json* counters, const char* name);

// ---- Numbers

[[nodiscard]] std::string digits(double value);      // three digits: 4.56, 45.6, 456
[[nodiscard]] std::string count_text(double value);  // 999, 1.23k, 45.6M
[[nodiscard]] std::string time_text(double seconds);

// ---- Lines

// Aligns the first column to the left and all others to the right.
[[nodiscard]] Lines table(const std::vector<std::vector<std::string>>& rows);
void append(Lines& lines, const Lines& more);
// Returns a line with a counter, its rate and its description; "" if the counter is 0. `before`: the counters of the
// previous document, or null.
[[nodiscard]] std::string counter_line(const std::string& name, const nlohmann::json& value,
                                       const nlohmann::json* before, const StatsLooks& looks, const char* help);

}  // namespace gradlane
