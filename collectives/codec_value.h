// codec_value.h - a codec and all its arguments as numbers, for descriptors, hellos and failures (pure functions)
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compress/kernels.h"

namespace gradlane {

// Returns all arguments but the first byte (`bits`, which packet headers carry as `param`), as one number.
[[nodiscard]] constexpr uint64_t more_arguments(const CodecArguments& arguments) noexcept {
  return std::bit_cast<uint64_t>(arguments) >> 8;
}
[[nodiscard]] constexpr CodecArguments read_arguments(uint8_t param, uint64_t more) noexcept {
  return std::bit_cast<CodecArguments>(more << 8 | param);
}

// The number for a codec in a failure holds the parameter in bits 0 to 7 and the id in bits 8 to 15. `extra` follows in
// bits 16 to 31, `rate` (at most 2^20 - 1) in bits 32 to 51, and `value_bits` from bit 52 on.
inline constexpr unsigned kValueRateBits = 20;
[[nodiscard]] constexpr uint64_t codec_value(uint8_t id, const CodecArguments& arguments) noexcept {
  const uint64_t rate = std::min<uint64_t>(arguments.rate, (1U << kValueRateBits) - 1);
  return arguments.bits | uint64_t{id} << 8 | uint64_t{arguments.extra} << 16 | rate << 32 |
         uint64_t{arguments.value_bits} << (32 + kValueRateBits);
}
[[nodiscard]] constexpr CodecArguments arguments_of(uint64_t value) noexcept {
  return {.bits = static_cast<uint8_t>(value),
          .value_bits = static_cast<uint8_t>(value >> (32 + kValueRateBits)),
          .extra = static_cast<uint16_t>(value >> 16),
          .rate = static_cast<uint32_t>(value >> 32 & ((1U << kValueRateBits) - 1))};
}

}  // namespace gradlane
