// parse.cc - parsers of numbers in texts (set-up only)
#include "base/parse.h"

#include <algorithm>
#include <charconv>

namespace gradlane {
namespace {

// Takes a number from the beginning of `text`. `how` is the last argument of from_chars(): a base or a format.
template <class Number, class How>
std::optional<Number> take(std::string_view& text, How how) noexcept {
  Number number{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, how);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return number;
}

}  // namespace

std::optional<uint64_t> take_decimal(std::string_view& text) noexcept { return take<uint64_t>(text, 10); }

std::optional<double> take_real(std::string_view& text, bool exponent) noexcept {
  return take<double>(text, exponent ? std::chars_format::general : std::chars_format::fixed);
}

std::optional<uint64_t> parse_decimal(std::string_view text, uint64_t least, uint64_t most) noexcept {
  const auto number = take_decimal(text);
  return number && text.empty() && *number >= least && *number <= most ? number : std::nullopt;
}

std::optional<uint64_t> parse_hex(std::string_view text) noexcept {
  const auto number = take<uint64_t>(text, 16);
  return text.empty() ? number : std::nullopt;
}

std::optional<uint64_t> parse_whole(std::string_view text) noexcept {
  return text.starts_with("0x") ? parse_hex(text.substr(2)) : parse_decimal(text);
}

std::optional<double> parse_real(std::string_view text, double least, double most) noexcept {
  const auto number = take_real(text, true);
  // NaN fails these comparisons, too
  return number && text.empty() && *number >= least && *number <= most ? number : std::nullopt;
}

std::optional<uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units, uint64_t least,
                                       uint64_t most) noexcept {
  const auto number = take_decimal(text);
  const auto unit = std::ranges::find(units, text, &Unit::suffix);
  if (!number || unit == units.end() || *number > most / unit->factor) return std::nullopt;
  const uint64_t value = *number * unit->factor;
  return value >= least ? std::optional(value) : std::nullopt;
}

}  // namespace gradlane
