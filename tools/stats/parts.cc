// parts.cc - reads figures from a document in which any field may be missing, and formats them (no I/O)
#include "tools/stats/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gradlane {

using nlohmann::json;

// ---- Reading

const json& at(const json& object, const char* key) {
  static const json nothing;
  if (!object.is_object()) return nothing;
  const auto it = object.find(key);
  return it == object.end() ? nothing : *it;
}

std::string text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "-" : value.dump();
}

double number(const json& value) { return value.is_number() ? std::clamp(value.get<double>(), -1e18, 1e18) : 0; }

unsigned whole(const json& value) {
  return static_cast<unsigned>(
      std::clamp(std::round(number(value)), 0.0, double{std::numeric_limits<unsigned>::max()}));
}

const json* element(const json* array, size_t i) {
  return array != nullptr && array->is_array() && i < array->size() ? &(*array)[i] : nullptr;
}

const json* member(const json* object, const char* key) { return object == nullptr ? nullptr : &at(*object, key); }

// ---- Numbers

std::string digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  return value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string count_text(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{:.0f}", value) : digits(value) + kUnits[unit];
}

std::string time_text(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds);
  if (whole < 60) return fmt::format("{:.1f} s", seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

// ---- Lines

Lines table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  Lines lines;
  for (const auto& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    lines.push_back(std::move(line));
  }
  return lines;
}

void append(Lines& lines, const Lines& more) { lines.insert(lines.end(), more.begin(), more.end()); }

// ---- Counters

double counter(const json* counters, const char* name) { return counters == nullptr ? 0 : number(at(*counters, name)); }

std::string counter_line(const std::string& name, const json& value, const json* before, const StatsLooks& looks,
                         const char* help) {
  if (number(value) == 0) return "";
  std::string line = fmt::format("  {:<24} {:>14}", name, value.dump());
  if (looks.rates()) {
    const double rate = std::max(number(value) - counter(before, name.c_str()), 0.0) / looks.seconds;
    line += fmt::format(" {:>10}", count_text(rate) + "/s");
  }
  return line + "  " + help;
}

}  // namespace gradlane
