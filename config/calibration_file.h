// calibration_file.h - a calibration as a YAML file, and back (set-up only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/plan/calibration.h"

namespace gradlane {

// The text of a file; `file` stands for it in messages. Throws SetupError: "file:line:column: key: what is wrong, what
// is allowed". Another version than kCalibrationVersion is refused before anything else is looked at. Whether it is
// stale or of another host: calibration_fault().
[[nodiscard]] Calibration parse_calibration(std::string_view text, const std::string& file);
[[nodiscard]] Calibration load_calibration(const std::string& path);

// What parse_calibration() reads to the same, to nine digits. `made_s` counts, not `made`.
[[nodiscard]] std::string calibration_text(const Calibration& calibration);

// "2026-11-23T16:44:25Z", and back to s since 1970.
[[nodiscard]] std::string utc_text(uint64_t seconds);
[[nodiscard]] std::optional<uint64_t> utc_seconds(std::string_view text);

}  // namespace gradlane
