// crc32c.h - CRC32C (Castagnoli) in pieces
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane {

inline constexpr uint32_t kCrcStart = 0xffffffff;

// The state after `bytes` more bytes. The CRC of RFC 3720 is the complement of the last state.
[[nodiscard]] uint32_t crc32c(uint32_t state, const uint8_t* data, size_t bytes) noexcept;

}  // namespace gradlane
