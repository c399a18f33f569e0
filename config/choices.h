// choices.h - the keys codec, strategy, calibration and plan, by which the library may choose codecs and strategies
// (set-up only)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/tuner/auto_name.h"
#include "collectives/auto_scope.h"
#include "config/config.h"

namespace gradlane {

class Section;

inline constexpr const char* kAutoCodec = "auto";  // a bound may follow it: client/tuner/auto_name.h

// Reads these keys. The strategies must have been read. `ranks` is the number of ranks; 0 if it is not known.
void read_choices(const Section& root, NodeConfig& config, unsigned ranks);

// Returns the choices that the configuration leaves to trainers' libraries.
[[nodiscard]] AutoScope auto_scope(const NodeConfig& config) noexcept;

// Returns the bound of the error that a codec makes in a contribution. If the codec rounds and has no such bound, bits
// is 0.
[[nodiscard]] gl_auto error_bound(const Codec& codec) noexcept;

// Returns a warning if the other keys leave a key without effect; empty if all keys have an effect.
[[nodiscard]] std::string choices_warning(const NodeConfig& config);

// Parses the text of a plan file. `file` is its name in messages. Throws SetupError: "file:line:column: key: what is
// wrong, what is allowed". The plan may name only `strategies`. `ranks` is the number of ranks; 0 if it is not known.
[[nodiscard]] std::vector<PlanChoice> parse_plan(std::string_view text, const std::string& file,
                                                 const std::vector<StrategyId>& strategies, unsigned ranks = 0);
// Returns text from which parse_plan() reads the same plan.
[[nodiscard]] std::string plan_text(const std::vector<PlanChoice>& plan);

}  // namespace gradlane
