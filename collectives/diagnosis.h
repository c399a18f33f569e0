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
  bool heard = false;  // packets arrived lately, so it is our packets that do not get through
  // ToS bytes that belong to no traffic class. The first is that of the neighbour's packets, as they arrive here. The
  // second is that of our packets, as they arrive at the neighbour, which reported it.
  std::optional<uint8_t> arrived_tos = std::nullopt;
  std::optional<uint8_t> complained_tos = std::nullopt;
  // If `heard`: bytes of the IP packet that is never acknowledged, and of the longest one that was acknowledged
  // meanwhile.
  uint64_t blocked_bytes = 0;
  uint64_t acked_bytes = 0;
  uint64_t path_bytes = 0;  // bytes of IP, see PacketIo::path_bytes()
};

// Every IP link passes packets up to this length (RFC 791), so their length is not what stops them.
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
[[nodiscard]] constexpr PacketPath way_of(uint64_t packed) noexcept {
  return {static_cast<uint16_t>(packed >> 16), static_cast<uint16_t>(packed), static_cast<uint32_t>(packed >> 32)};
}

}  // namespace gradlane
