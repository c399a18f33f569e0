// internet.h - fields of Ethernet, IPv4, UDP and TCP headers, byte order, the Internet checksum (pure functions)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/wire.h"

namespace gradlane::internet {

// ---- Offsets of fields: Ethernet's from the start of the frame, those of the other protocols from the start of their
// header.

inline constexpr size_t kDestinationMac = 0, kSourceMac = 6, kEtherType = 12;
inline constexpr uint16_t kEtherIpv4 = 0x0800, kEtherArp = 0x0806, kEtherVlan = 0x8100, kEtherServiceVlan = 0x88a8;

inline constexpr size_t kIpTos = 1, kIpLength = 2, kIpId = 4, kIpFragment = 6, kIpTtl = 8, kIpProtocol = 9,
                        kIpChecksum = 10, kIpSource = 12, kIpDestination = 16;
inline constexpr uint16_t kReservedFlag = 0x8000, kDontFragment = 0x4000, kMoreFragments = 0x2000;
inline constexpr uint16_t kFragmentOffset = 0x1fff;
inline constexpr uint16_t kFragmentBits = kMoreFragments | kFragmentOffset;
inline constexpr uint8_t kIcmp = 1, kTcp = 6, kUdp = 17;
inline constexpr uint8_t kTtl = 64;
inline constexpr uint8_t kEcnBits = 3;

inline constexpr size_t kUdpSource = 0, kUdpDestination = 2, kUdpLength = 4, kUdpChecksum = 6;
inline constexpr size_t kTcpSequence = 4, kTcpAck = 8, kTcpOffset = 12, kTcpFlags = 13, kTcpWindow = 14,
                        kTcpChecksum = 16, kTcpUrgent = 18;
inline constexpr size_t kTcpBytes = 20;  // without options

// ---- Network byte order

inline uint16_t load16(const uint8_t* from) noexcept { return __builtin_bswap16(load<uint16_t>(from)); }
inline uint32_t load32(const uint8_t* from) noexcept { return __builtin_bswap32(load<uint32_t>(from)); }
inline void store16(uint8_t* to, uint16_t value) noexcept { store(to, __builtin_bswap16(value)); }
inline void store32(uint8_t* to, uint32_t value) noexcept { store(to, __builtin_bswap32(value)); }

// ---- The Internet checksum (RFC 1071): a one's complement sum, which is the same in either byte order. Sums here are
// in memory order.

constexpr uint16_t fold(uint64_t sum) noexcept {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// Returns the one's complement sum of `bytes` bytes. An odd last byte is padded with a zero. The result is 0xffff if
// the bytes contain a correct checksum.
[[nodiscard]] uint16_t ones_sum(const uint8_t* data, size_t bytes) noexcept;

// Returns the sum over an IP header without options. Nearly all headers have none.
inline uint16_t plain_header_sum(const uint8_t* ip) noexcept {
  return fold((load<uint64_t>(ip) >> 32) + (load<uint64_t>(ip) & 0xffffffff) + (load<uint64_t>(ip + 8) >> 32) +
              (load<uint64_t>(ip + 8) & 0xffffffff) + load<uint32_t>(ip + 16));
}

// Returns the sum, not folded, of the pseudo-header for UDP or TCP. `length` is the length of the UDP or TCP packet.
inline uint64_t pseudo_header_sum(const uint8_t* ip, uint8_t protocol, size_t length) noexcept {
  return uint64_t{load<uint32_t>(ip + kIpSource)} + load<uint32_t>(ip + kIpDestination) +
         __builtin_bswap16(uint16_t{protocol}) + __builtin_bswap16(static_cast<uint16_t>(length));
}

// Computes the checksum of `bytes` bytes and writes it to offset `field`.
void seal(uint8_t* data, size_t bytes, size_t field) noexcept;

// Computes the UDP or TCP checksum of `length` bytes at `l4` and writes it there. A UDP checksum of 0 is written as
// 0xffff, as 0 would mean that there is none (RFC 768).
void seal_l4(const uint8_t* ip, uint8_t* l4, uint8_t protocol, size_t length) noexcept;

// Changes a 16-bit field and corrects the checksum that covers it (RFC 1624, equation 3). Both must lie at an even
// distance from the first byte that the checksum covers.
inline void change16(uint8_t* field, uint16_t value, uint8_t* checksum) noexcept {
  const auto before = static_cast<uint16_t>(~load16(field));
  const auto sum = static_cast<uint16_t>(~load16(checksum));
  store16(checksum, static_cast<uint16_t>(~fold(uint64_t{sum} + before + value)));
  store16(field, value);
}

}  // namespace gradlane::internet
