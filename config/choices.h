// choices.h - what a configuration leaves to the library to choose, and by what: the keys codec, strategy, calibration
// and plan (set-up only)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/left_open.h"
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

// After the strategies have been read. `ranks`: how many there are; 0: that is not known.
void read_choices(const Section& root, NodeConfig& config, unsigned ranks);

// What it leaves to trainers' libraries.
[[nodiscard]] LeftOpen left_open(const NodeConfig& config) noexcept;

// The error of a codec's contributions: at most 2^-bits, or 2^-bits of the largest value. Bits 0 of what rounds: it has
// no bound of that kind.
struct ErrorBound {
  enum class Kind : uint8_t { kExact, kAbsolute, kRelative };
  Kind kind = Kind::kExact;
  unsigned bits = 0;
};
[[nodiscard]] ErrorBound error_bound(const Codec& codec) noexcept;

// Of a key that does nothing with the others as they are; empty: all do.
[[nodiscard]] std::string choices_warning(const NodeConfig& config);

// The text of a plan's file; `file` stands for it in messages. Throws SetupError: "file:line:column: key: what is
// wrong, what is allowed". `strategies`: those that may stand there. `ranks` as above.
[[nodiscard]] std::vector<PlanChoice> parse_plan(std::string_view text, const std::string& file,
                                                 const std::vector<StrategyId>& strategies, unsigned ranks = 0);
// What parse_plan() reads to the same.
[[nodiscard]] std::string plan_text(const std::vector<PlanChoice>& plan);

}  // namespace gradlane
