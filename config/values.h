// values.h - conversion of texts of a configuration file to numbers and addresses, and back (set-up only)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/parse.h"
#include "base/time.h"
#include "config/config.h"

namespace gradlane {

// These parsers work like those of base/parse.h, which has the ones for plain numbers.

// Parses bytes: a decimal number, which B, KiB, MiB, GiB or TiB may follow.
[[nodiscard]] std::optional<uint64_t> parse_size(std::string_view text) noexcept;

// Parses a decimal number followed by ns, us, ms, s, min or h.
[[nodiscard]] std::optional<Nanos> parse_duration(std::string_view text) noexcept;

// Parses a decimal number from 0 to 1, or a percentage from 0% to 100%: 0.01, 1%.
[[nodiscard]] std::optional<double> parse_probability(std::string_view text) noexcept;

// Parses 10.77.0.1. The result is in host byte order.
[[nodiscard]] std::optional<uint32_t> parse_ip(std::string_view text) noexcept;

// Parses 02:00:00:00:00:01.
[[nodiscard]] std::optional<MacAddress> parse_mac(std::string_view text) noexcept;

// Return texts that the parsers above take, in the largest unit that leaves no fraction.
[[nodiscard]] std::string size_text(uint64_t bytes);
[[nodiscard]] std::string duration_text(Nanos time);
[[nodiscard]] std::string probability_text(double probability);  // text that reads to exactly the same number
[[nodiscard]] std::string ip_text(uint32_t ip);
[[nodiscard]] std::string mac_text(const MacAddress& mac);

[[nodiscard]] std::string lower(std::string text);  // A to Z become a to z

}  // namespace gradlane
