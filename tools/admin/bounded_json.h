// bounded_json.h - JSON from somebody who need not be a daemon (pure)
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gradlane {

// What a document of a daemon may have. A parsed one is no larger than about 100 bytes for each value.
struct JsonBounds {
  size_t bytes = size_t{4} << 20;
  size_t values = 250'000;     // about: commas, and brackets that open
  size_t depth = 16;           // brackets within brackets
  size_t text = size_t{4096};  // bytes of a string, as it is written
};

// Whether it keeps to them, before anything is allocated. That it is JSON is not said.
[[nodiscard]] bool is_bounded(std::string_view text, const JsonBounds& bounds = {}) noexcept;

// Null: it is no JSON, or does not keep to the bounds.
[[nodiscard]] nlohmann::json parse_bounded(std::string_view text, const JsonBounds& bounds = {});

}  // namespace gradlane
