// probe.h - writing and parsing packets that ask a neighbour who it is and how they arrived (pure functions)
//
// A probe is a UDP datagram to a gradlane port. Its first two bytes distinguish it from a packet of the exchange.
// docs/wire-format.md shows the bytes. The receiver of a request answers with a reply of the same length. The reply
// says who the receiver is, and with which ToS and length the request arrived. It is sent with the ToS that the request
// was sent with, so one reply shows whether the ToS byte was changed in either direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/wire.h"
#include "config/config.h"

namespace gradlane {

inline constexpr uint16_t kProbeMagic = 0x5047;  // "GP"

enum class ProbeKind : uint8_t { kRequest = 1, kReply = 2 };

// The sender of a probe: its number, and the settings on which neighbours must agree.
struct [[gnu::packed]] ProbeIdentity {
  uint64_t rank_table;  // rank_table_digest(): digest of the nodes and of the settings that all nodes share
  uint16_t nodes;
  uint16_t node;  // number of the sender
  uint16_t mtu;   // MTU of IP
  uint8_t codec;
  uint8_t param;
  uint8_t protocol;      // version of the exchange's packets
  uint8_t arguments[3];  // digest of the codec arguments that `param` does not hold; 0: there are none
};
static_assert(sizeof(ProbeIdentity) == 20);

// The header of a probe. Integers are little-endian. Zeros follow the header, up to the length that was asked for.
struct [[gnu::packed]] ProbeHeader {
  uint16_t magic;
  uint8_t version;
  ProbeKind kind;
  uint32_t id;     // number of the request; the reply repeats it
  uint64_t nonce;  // random number; the reply repeats it, so only a host that sees the request can answer it
  ProbeIdentity sender;
  uint8_t tos;          // ToS with which the request was sent
  uint8_t arrived_tos;  // reply: ToS with which the request arrived; request: 0
  uint16_t arrived;     // reply: length of the IP packet that carried the request; request: 0
  uint32_t crc;         // CRC32C of the bytes after this header, followed by the bytes of this header before `crc`
};
static_assert(sizeof(ProbeHeader) == 44);
static_assert(offsetof(ProbeHeader, version) == 2);
static_assert(offsetof(ProbeHeader, kind) == 3);
static_assert(offsetof(ProbeHeader, id) == 4);
static_assert(offsetof(ProbeHeader, nonce) == 8);
static_assert(offsetof(ProbeHeader, sender) == 16);
static_assert(offsetof(ProbeIdentity, nodes) == 8);
static_assert(offsetof(ProbeIdentity, node) == 10);
static_assert(offsetof(ProbeIdentity, mtu) == 12);
static_assert(offsetof(ProbeIdentity, codec) == 14);
static_assert(offsetof(ProbeIdentity, protocol) == 16);
static_assert(offsetof(ProbeIdentity, arguments) == 17);
static_assert(offsetof(ProbeHeader, tos) == 36);
static_assert(offsetof(ProbeHeader, arrived_tos) == 37);
static_assert(offsetof(ProbeHeader, arrived) == 38);
static_assert(offsetof(ProbeHeader, crc) == 40);

inline constexpr uint8_t kProbeVersion = 1;
inline constexpr size_t kLeastProbe = sizeof(ProbeHeader);

// Returns whether the payload of a datagram claims to be a probe.
[[nodiscard]] inline bool is_probe(std::span<const uint8_t> payload) noexcept {
  return payload.size() >= sizeof(kProbeMagic) && load<uint16_t>(payload.data()) == kProbeMagic;
}

// Fills `payload`, at least kLeastProbe bytes, with a probe. Sets magic, version and crc of `header`.
void write_probe(std::span<uint8_t> payload, ProbeHeader header) noexcept;

// Returns the header of a complete, undamaged probe of this version, or nothing for any other bytes. Reads nothing
// outside `payload`.
[[nodiscard]] std::optional<ProbeHeader> parse_probe(std::span<const uint8_t> payload) noexcept;

// Returns the reply to a request that arrived with this ToS, in an IP packet of `arrived` bytes.
[[nodiscard]] ProbeHeader reply_to(const ProbeHeader& request, const ProbeIdentity& us, uint8_t arrived_tos,
                                   size_t arrived) noexcept;

// Returns the identity of a node, from its configuration.
[[nodiscard]] ProbeIdentity probe_identity(const NodeConfig& config);

}  // namespace gradlane
