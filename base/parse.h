// parse.h - texts as numbers (set-up only)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gradlane {

// Parsers take the whole text, without spaces around it. Nothing is returned for anything else than what they say, and
// for numbers outside [least, most].

// Digits, and no sign.
[[nodiscard]] std::optional<uint64_t> parse_decimal(std::string_view text, uint64_t least = 0,
                                                    uint64_t most = UINT64_MAX) noexcept;
[[nodiscard]] std::optional<uint64_t> parse_hex(std::string_view text) noexcept;  // without 0x
// Decimal, or hexadecimal behind 0x.
[[nodiscard]] std::optional<uint64_t> parse_whole(std::string_view text) noexcept;

// 2, 0.5, 1e-3.
[[nodiscard]] std::optional<double> parse_real(std::string_view text, double least, double most) noexcept;

// A number of units: its factor goes with each suffix, and "" is one, too.
struct Unit {
  std::string_view suffix;
  uint64_t factor;
};
// What the command line takes: 65536, 64K, 10M, 1G.
inline constexpr Unit kShortSizes[] = {
    {"", 1}, {"K", uint64_t{1} << 10}, {"M", uint64_t{1} << 20}, {"G", uint64_t{1} << 30}};
[[nodiscard]] std::optional<uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units,
                                                     uint64_t least = 0, uint64_t most = UINT64_MAX) noexcept;

// ---- The beginning of a text; it goes from `text`. Nothing: there is no number, or it is too large, and all stays.

[[nodiscard]] std::optional<uint64_t> take_decimal(std::string_view& text) noexcept;
// 2.5 or, where `exponent`, 25e-1 too; with a sign, or inf and nan, as well.
[[nodiscard]] std::optional<double> take_real(std::string_view& text, bool exponent) noexcept;

}  // namespace gradlane
