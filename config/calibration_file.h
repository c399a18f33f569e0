// calibration_file.h - conversion of a calibration to a YAML file, and back (set-up only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/cost/calibration.h"

namespace gradlane {

// Parse a file. `file` is its name in messages. They throw SetupError: "file:line:column: key: what is wrong, what is
// allowed". A version other than kCalibrationVersion is refused before anything else is checked. They do not check
// whether the calibration is stale or of another host: see calibration_fault().
[[nodiscard]] Calibration parse_calibration(std::string_view text, const std::string& file);
[[nodiscard]] Calibration load_calibration(const std::string& path);

// Returns text from which parse_calibration() reads the same values, to nine digits. The time in the text is that of
// `made_s`; `made` is ignored.
[[nodiscard]] std::string calibration_text(const Calibration& calibration);

// Convert seconds since 1970 to "2026-11-23T16:44:25Z", and back.
[[nodiscard]] std::string utc_text(uint64_t seconds);
[[nodiscard]] std::optional<uint64_t> utc_seconds(std::string_view text);

}  // namespace gradlane
