// parts.h - figures of a document that may lack anything, as people read them (no I/O)
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradlane {

using Lines = std::vector<std::string>;

// What two looks say. `before` may be null.
struct StatsLooks {
  const nlohmann::json& now;
  const nlohmann::json* before;
  double seconds;
  [[nodiscard]] bool rates() const { return before != nullptr && seconds > 0; }
};

// ---- Reading: what is not there is null, "-", 0

[[nodiscard]] const nlohmann::json& at(const nlohmann::json& object, const char* key);
[[nodiscard]] const nlohmann::json* member(const nlohmann::json* object, const char* key);
[[nodiscard]] const nlohmann::json* element(const nlohmann::json* array, size_t i);
[[nodiscard]] std::string text(const nlohmann::json& value);
[[nodiscard]] double number(const nlohmann::json& value);   // within +-1e18
[[nodiscard]] unsigned whole(const nlohmann::json& value);  // likewise: the nearest one
[[nodiscard]] double counter(const nlohmann::json* counters, const char* name);

// ---- Numbers

[[nodiscard]] std::string digits(double value);      // three: 4.56, 45.6, 456
[[nodiscard]] std::string count_text(double value);  // 999, 1.23k, 45.6M
[[nodiscard]] std::string time_text(double seconds);

// ---- Lines

// The first column to the left, others to the right.
[[nodiscard]] Lines table(const std::vector<std::vector<std::string>>& rows);
void append(Lines& lines, const Lines& more);
// A counter and what it counts; "" if it is 0. `before`: the counters of the look before, or null.
[[nodiscard]] std::string counter_line(const std::string& name, const nlohmann::json& value,
                                       const nlohmann::json* before, const StatsLooks& looks, const char* help);

}  // namespace gradlane
