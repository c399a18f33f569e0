// bounded_json.h - limits for JSON whose sender need not be a daemon (pure)
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gradlane {

// Limits for a document of a daemon. A parsed document takes at most about 100 bytes per value.
struct JsonBounds {
  size_t bytes = size_t{4} << 20;
  size_t values = 250'000;     // estimated number of values: commas, and brackets that open
  size_t depth = 16;           // brackets within brackets
  size_t text = size_t{4096};  // longest string, in bytes of the text
};

// Returns whether the text is within the limits, without allocating memory. It does not check whether the text is JSON.
[[nodiscard]] bool is_bounded(std::string_view text, const JsonBounds& bounds = {}) noexcept;

// Returns the parsed text; null if it is no JSON, or exceeds the limits.
[[nodiscard]] nlohmann::json parse_bounded(std::string_view text, const JsonBounds& bounds = {});

}  // namespace gradlane
