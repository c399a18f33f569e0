// choices.h - what a configuration leaves to the library to choose, and by what: the keys codec, strategy, calibration
// and plan (set-up only)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace gradlane {

class Section;

// "auto" and what may follow it are for the library: client/library/wishes.c reads the same names.
inline constexpr const char* kAutoCodec = "auto";
inline constexpr const char* kAutoUsage = "auto (exact), auto:2^-B or auto:rel=B, B 1 to 30";

// Whether the name is meant to be one of those,
[[nodiscard]] bool begins_auto(std::string_view name) noexcept;
//   and is one.
[[nodiscard]] bool is_auto_codec(std::string_view name) noexcept;

// After the strategies have been read.
void read_choices(const Section& root, NodeConfig& config);

// The text of a plan's file; `file` stands for it in messages. Throws SetupError: "file:line:column: key: what is
// wrong, what is allowed". `strategies`: those that may stand there.
[[nodiscard]] std::vector<PlanChoice> parse_plan(std::string_view text, const std::string& file,
                                                 const std::vector<StrategyId>& strategies);
// What parse_plan() reads to the same.
[[nodiscard]] std::string plan_text(const std::vector<PlanChoice>& plan);

}  // namespace gradlane
