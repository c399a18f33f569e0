// parse.h - parsers of numbers in texts (set-up only)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gradlane {

// These parsers take the whole text, without spaces around it. They return nothing for any other text, and for numbers
// outside [least, most].

// Parses decimal digits without a sign.
[[nodiscard]] std::optional<uint64_t> parse_decimal(std::string_view text, uint64_t least = 0,
                                                    uint64_t most = UINT64_MAX) noexcept;
[[nodiscard]] std::optional<uint64_t> parse_hex(std::string_view text) noexcept;  // hexadecimal digits without 0x
// Parses a decimal number, or a hexadecimal one after 0x.
[[nodiscard]] std::optional<uint64_t> parse_whole(std::string_view text) noexcept;

// Parses numbers like 2, 0.5 and 1e-3.
[[nodiscard]] std::optional<double> parse_real(std::string_view text, double least, double most) noexcept;

// A unit of parse_quantity(): the suffix, and the factor by which the number is multiplied. The suffix "" stands for
// numbers without a unit.
struct Unit {
  std::string_view suffix;
  uint64_t factor;
};
// The units of sizes on the command line: 65536, 64K, 10M, 1G.
inline constexpr Unit kShortSizes[] = {
    {"", 1}, {"K", uint64_t{1} << 10}, {"M", uint64_t{1} << 20}, {"G", uint64_t{1} << 30}};
[[nodiscard]] std::optional<uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units,
                                                     uint64_t least = 0, uint64_t most = UINT64_MAX) noexcept;

// ---- Functions that take a number from the beginning of `text` and remove it there. If there is no number or it is
// too large, they return nothing and do not change `text`.

[[nodiscard]] std::optional<uint64_t> take_decimal(std::string_view& text) noexcept;
// Takes a number like 2.5 or, with `exponent`, also 25e-1. It may have a minus sign, and inf and nan are numbers, too.
[[nodiscard]] std::optional<double> take_real(std::string_view& text, bool exponent) noexcept;

}  // namespace gradlane
