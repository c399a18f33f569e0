// crc32c.h - CRC32C (Castagnoli), computed piece by piece
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradlane {

inline constexpr uint32_t kCrcStart = 0xffffffff;

// Returns the state after `bytes` more bytes. The CRC of RFC 3720 is the complement of the final state.
[[nodiscard]] uint32_t crc32c(uint32_t state, const uint8_t* data, size_t bytes) noexcept;

// Returns the state after the 40 bytes of a link header before its CRC, which are given as little-endian words in
// registers. Loads from memory would stall if the header was just written there by stores of other widths.
using HeaderWords = std::array<uint64_t, 5>;
#ifdef __x86_64__
[[nodiscard]] inline uint32_t crc32c(uint32_t state, const HeaderWords& words) noexcept {
  uint64_t wide = state;
  for (const uint64_t word : words) wide = __builtin_ia32_crc32di(wide, word);
  return static_cast<uint32_t>(wide);
}
#else
// Uses the CPU's CRC instruction if there is one; in ARMv8.0 it is optional.
[[nodiscard]] uint32_t crc32c(uint32_t state, const HeaderWords& words) noexcept;
#endif

}  // namespace gradlane
