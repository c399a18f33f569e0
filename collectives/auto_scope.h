// auto_scope.h - the choices that a node's configuration leaves to its trainers' libraries, as a number for hellos and
// failures (pure functions)
#pragma once

#include <cstdint>
#include <optional>

#include "client/tuner/auto_name.h"

namespace gradlane {

// The choices that `auto` leaves to the client libraries. They apply to operations that name no codec or no strategy.
struct AutoScope {
  // error bound within which the codec is chosen; none: the configuration names the codec
  std::optional<gl_auto> codec{};
  bool strategy = false;
};

[[nodiscard]] constexpr uint64_t auto_scope_value(const AutoScope& it) noexcept {
  const uint64_t codec = it.codec ? (1 + uint64_t{it.codec->bound}) | uint64_t{it.codec->bits} << 8 : 0;
  return codec | uint64_t{it.strategy} << 16;
}
// Returns the choices that a number from auto_scope_value() stands for. The number may come from another rank: parts
// that this version does not know are left out.
[[nodiscard]] constexpr AutoScope auto_scope_of(uint64_t value) noexcept {
  const auto codec = static_cast<uint8_t>(value);
  AutoScope it{.strategy = (value >> 16 & 1) != 0};
  if (codec == 0 || codec > 1 + GL_BOUND_RELATIVE) return it;
  it.codec = gl_auto{static_cast<gl_bound>(codec - 1), static_cast<uint8_t>(value >> 8)};
  return it;
}

}  // namespace gradlane
