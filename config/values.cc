// values.cc - conversion of texts of a configuration file to numbers and addresses, and back (set-up only)
#include "config/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <span>

namespace gradlane {
namespace {

// Units, from small to large.
constexpr Unit kSizes[] = {{"B", 1},
                           {"KiB", uint64_t{1} << 10},
                           {"MiB", uint64_t{1} << 20},
                           {"GiB", uint64_t{1} << 30},
                           {"TiB", uint64_t{1} << 40}};
constexpr Unit kTimes[] = {{"ns", 1},      {"us", kMicrosecond},  {"ms", kMillisecond},
                           {"s", kSecond}, {"min", 60 * kSecond}, {"h", 3600 * kSecond}};

std::string quantity_text(uint64_t value, std::span<const Unit> units) {
  const auto divides = [&](const Unit& unit) { return value % unit.factor == 0; };
  // A time of zero is written in the middle unit: 0s.
  const Unit& unit = value == 0 ? units[units.size() / 2] : *std::find_if(units.rbegin(), units.rend(), divides);
  return fmt::format("{}{}", value / unit.factor, unit.suffix);
}

// Returns the part before `separator`, and removes both from `text`. Returns all of `text` if there is no separator.
std::string_view take_part(std::string_view& text, char separator) noexcept {
  const size_t length = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return part;
}

}  // namespace

std::optional<uint64_t> parse_size(std::string_view text) noexcept {
  if (const auto bytes = parse_decimal(text)) return bytes;
  return parse_quantity(text, kSizes);
}

std::optional<Nanos> parse_duration(std::string_view text) noexcept { return parse_quantity(text, kTimes); }

std::optional<double> parse_probability(std::string_view text) noexcept {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  // take_real() would also take inf, 1. and .5.
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !digit(text.front()) || !digit(text.back())) return std::nullopt;
  const auto value = take_real(text, false);
  if (!value || !text.empty() || *value > (percent ? 100 : 1)) return std::nullopt;
  return percent ? *value / 100 : value;
}

std::optional<uint32_t> parse_ip(std::string_view text) noexcept {
  if (std::ranges::count(text, '.') != 3) return std::nullopt;
  uint32_t ip = 0;
  for (int i = 0; i < 4; ++i) {
    const std::string_view part = take_part(text, '.');
    const auto byte = parse_decimal(part);
    // Some programs read 010 as 8.
    if (!byte || *byte > 255 || (part.size() > 1 && part[0] == '0')) return std::nullopt;
    ip = ip << 8 | static_cast<uint32_t>(*byte);
  }
  return ip;
}

std::optional<MacAddress> parse_mac(std::string_view text) noexcept {
  if (std::ranges::count(text, ':') != 5) return std::nullopt;
  MacAddress mac{};
  for (uint8_t& byte : mac) {
    const std::string_view part = take_part(text, ':');
    const auto value = parse_hex(part);
    if (!value || part.size() != 2) return std::nullopt;
    byte = static_cast<uint8_t>(*value);
  }
  return mac;
}

std::string size_text(uint64_t bytes) { return bytes == 0 ? "0" : quantity_text(bytes, kSizes); }

std::string duration_text(Nanos time) { return quantity_text(time, kTimes); }

std::string probability_text(double probability) {
  std::array<char, 400> text;  // the smallest double has 326 digits after its point
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), probability, std::chars_format::fixed);
  return error == std::errc() ? std::string(text.data(), end) : "0";
}

std::string ip_text(uint32_t ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

std::string mac_text(const MacAddress& mac) { return fmt::format("{:02x}", fmt::join(mac, ":")); }

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace gradlane
