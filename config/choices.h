// choices.h - what a configuration leaves to the library to choose, and by what: the keys codec, strategy, calibration
// and plan (set-up only)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/tuner/auto_name.h"
#include "collectives/left_open.h"
#include "config/config.h"

namespace gradlane {

class Section;

inline constexpr const char* kAutoCodec = "auto";  // and what may follow it: client/tuner/auto_name.h

// After the strategies have been read. `ranks`: how many there are; 0: that is not known.
void read_choices(const Section& root, NodeConfig& config, unsigned ranks);

// What it leaves to trainers' libraries.
[[nodiscard]] LeftOpen left_open(const NodeConfig& config) noexcept;

// Returns the bound of the error of a codec's contributions. Bits 0 of what rounds: it has no such bound.
[[nodiscard]] gl_auto error_bound(const Codec& codec) noexcept;

// Of a key that does nothing with the others as they are; empty: all do.
[[nodiscard]] std::string choices_warning(const NodeConfig& config);

// The text of a plan's file; `file` stands for it in messages. Throws SetupError: "file:line:column: key: what is
// wrong, what is allowed". `strategies`: those that may stand there. `ranks` as above.
[[nodiscard]] std::vector<PlanChoice> parse_plan(std::string_view text, const std::string& file,
                                                 const std::vector<StrategyId>& strategies, unsigned ranks = 0);
// What parse_plan() reads to the same.
[[nodiscard]] std::string plan_text(const std::vector<PlanChoice>& plan);

}  // namespace gradlane
