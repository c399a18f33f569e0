// left_open.h - what a node's configuration leaves to its trainers' libraries to choose, as a number: in hellos, and in
// failures (pure functions)
#pragma once

#include <cstdint>
#include <optional>

#include "client/tuner/auto_name.h"

namespace gradlane {

// Of operations that name none.
struct LeftOpen {
  std::optional<gl_auto> codec{};  // chosen within this bound; nothing: it is named
  bool strategy = false;
};

[[nodiscard]] constexpr uint64_t left_open_value(const LeftOpen& it) noexcept {
  const uint64_t codec = it.codec ? (1 + uint64_t{it.codec->bound}) | uint64_t{it.codec->bits} << 8 : 0;
  return codec | uint64_t{it.strategy} << 16;
}
// Values may come from another rank: what is unknown is left out.
[[nodiscard]] constexpr LeftOpen left_open_of(uint64_t value) noexcept {
  const auto codec = static_cast<uint8_t>(value);
  LeftOpen it{.strategy = (value >> 16 & 1) != 0};
  if (codec == 0 || codec > 1 + GL_BOUND_RELATIVE) return it;
  it.codec = gl_auto{static_cast<gl_bound>(codec - 1), static_cast<uint8_t>(value >> 8)};
  return it;
}

}  // namespace gradlane
