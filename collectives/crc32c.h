// crc32c.h - CRC32C (Castagnoli) in pieces
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradlane {

inline constexpr uint32_t kCrcStart = 0xffffffff;

// The state after `bytes` more bytes. The CRC of RFC 3720 is the complement of the last state.
[[nodiscard]] uint32_t crc32c(uint32_t state, const uint8_t* data, size_t bytes) noexcept;

// The same for the 40 bytes of a link header before its CRC, little-endian, in registers: reading them from memory
// right after they were written in other pieces stalls.
using HeaderWords = std::array<uint64_t, 5>;
#ifdef __x86_64__
[[nodiscard]] inline uint32_t crc32c(uint32_t state, const HeaderWords& words) noexcept {
  uint64_t wide = state;
  for (const uint64_t word : words) wide = __builtin_ia32_crc32di(wide, word);
  return static_cast<uint32_t>(wide);
}
#else
// By the CPU's instruction where it has that: ARMv8.0 need not.
[[nodiscard]] uint32_t crc32c(uint32_t state, const HeaderWords& words) noexcept;
#endif

}  // namespace gradlane
