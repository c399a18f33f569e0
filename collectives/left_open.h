// left_open.h - what a node's configuration leaves to its trainers' libraries to choose, as a number: in hellos, and in
// failures (pure functions)
#pragma once

#include <cstdint>

namespace gradlane {

// Of operations that name none.
struct LeftOpen {
  enum class Codec : uint8_t { kNamed, kExact, kAbsolute, kRelative };
  Codec codec = Codec::kNamed;  // exact ones; of an error up to 2^-bits, or 2^-bits of the largest value
  uint8_t bits = 0;
  bool strategy = false;
};

[[nodiscard]] constexpr uint64_t left_open_value(const LeftOpen& it) noexcept {
  return uint64_t{static_cast<uint8_t>(it.codec)} | uint64_t{it.bits} << 8 | uint64_t{it.strategy} << 16;
}
// Values may come from another rank: what is unknown is left out.
[[nodiscard]] constexpr LeftOpen left_open_of(uint64_t value) noexcept {
  const auto codec = static_cast<uint8_t>(value);
  return {.codec = codec <= static_cast<uint8_t>(LeftOpen::Codec::kRelative) ? static_cast<LeftOpen::Codec>(codec)
                                                                             : LeftOpen::Codec::kNamed,
          .bits = static_cast<uint8_t>(value >> 8),
          .strategy = (value >> 16 & 1) != 0};
}

}  // namespace gradlane
