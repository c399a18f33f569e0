// diagnosis.h - why a neighbour is given up: from what was observed to a cause with a name (pure functions)
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/operation.h"

namespace gradlane {

// Of one link, when its neighbour is given up.
struct LinkFacts {
  unsigned self = 0;
  unsigned peer = 0;
  bool heard = false;  // lately; then it is our packets that get nowhere
  // ToS byte with which packets arrive that no class has: theirs here, and, as the neighbour says, ours there.
  std::optional<uint8_t> arrived_tos = std::nullopt;
  std::optional<uint8_t> complained_tos = std::nullopt;
  // heard: of the packet that is never acknowledged, and of the longest one that was meanwhile; of IP.
  uint64_t blocked_bytes = 0;
  uint64_t acked_bytes = 0;
  uint64_t path_bytes = 0;  // of IP, as PacketIo::path_bytes()
};

// Packets up to this length pass any link of IP (RFC 791), so it is not their length that stops them.
inline constexpr uint64_t kAnyLinkBytes = 576;

[[nodiscard]] Failure diagnose(const LinkFacts& facts) noexcept;

// What Failure::ours holds of kArrivedTos, kPacketSize, kNoAnswer, kPathMtu: from which rank to which, and how long the
// packet.
struct Way {
  uint16_t from = 0;
  uint16_t to = 0;
  uint32_t bytes = 0;
};
[[nodiscard]] constexpr uint64_t pack(const Way& way) noexcept {
  return uint64_t{way.bytes} << 32 | uint64_t{way.from} << 16 | way.to;
}
[[nodiscard]] constexpr Way way_of(uint64_t packed) noexcept {
  return {static_cast<uint16_t>(packed >> 16), static_cast<uint16_t>(packed), static_cast<uint32_t>(packed >> 32)};
}

}  // namespace gradlane
