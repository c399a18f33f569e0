// diagnosis.h - why a neighbour was given up: a named cause, derived from what was observed (pure functions)
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/operation.h"

namespace gradlane {

// Facts about one link at the time when its neighbour is given up.
struct LinkFacts {
  unsigned self = 0;
  unsigned peer = 0;
  bool heard = false;  // whether packets of the neighbour arrived lately; then it is our packets that get lost
  // `arrived_tos`: ToS byte of the neighbour's packets as they arrive here. `complained_tos`: ToS byte of our packets
  // as they arrive at the neighbour, which has reported it. Each is set only if the byte belongs to no traffic class.
  std::optional<uint8_t> arrived_tos = std::nullopt;
  std::optional<uint8_t> complained_tos = std::nullopt;
  // If `heard`: bytes of the IP packet that is never acknowledged, and of the longest one that was acknowledged
  // meanwhile.
  uint64_t blocked_bytes = 0;
  uint64_t acked_bytes = 0;
  // length of the longest IP packet that reaches the neighbour; 0 if there is no limit or it is unknown:
  // PacketIo::path_bytes()
  uint64_t path_bytes = 0;
};

// Length in bytes of an IP packet that every host must accept (RFC 791). If packets of at most this length get lost,
// the reason is not their length.
inline constexpr uint64_t kAnyLinkBytes = 576;

[[nodiscard]] Failure diagnose(const LinkFacts& facts) noexcept;

// The content of Failure::ours for kArrivedTos, kPacketSize, kNoAnswer and kPathMtu: sender, receiver and length of the
// packet.
struct PacketPath {
  uint16_t from = 0;
  uint16_t to = 0;
  uint32_t bytes = 0;
};
[[nodiscard]] constexpr uint64_t pack(const PacketPath& way) noexcept {
  return uint64_t{way.bytes} << 32 | uint64_t{way.from} << 16 | way.to;
}
[[nodiscard]] constexpr PacketPath path_of(uint64_t packed) noexcept {
  return {static_cast<uint16_t>(packed >> 16), static_cast<uint16_t>(packed), static_cast<uint32_t>(packed >> 32)};
}

}  // namespace gradlane
