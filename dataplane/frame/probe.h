// probe.h - packets that ask a neighbour who it is and how they arrived: written, parsed (pure functions)
//
// A probe is a UDP datagram to the ports of gradlane, told from a packet of the exchange by its first two bytes.
// docs/wire-format.md has the bytes. The receiver of a request answers with a reply of the same length, which says who
// it is, and with which ToS and length the request got there; the reply goes back with the ToS that the request was
// sent with. So one answer tells what became of the ToS byte in both directions.
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

// Who sent a probe: what neighbours must agree about, and which node it is.
struct [[gnu::packed]] ProbeIdentity {
  uint64_t rank_table;  // digest of who is who
  uint16_t nodes;
  uint16_t node;  // of the sender
  uint16_t mtu;   // of IP
  uint8_t codec;
  uint8_t param;
  uint8_t protocol;      // version of the exchange's packets
  uint8_t arguments[3];  // digest of what the codec's name says beside `param`; 0: nothing
};
static_assert(sizeof(ProbeIdentity) == 20);

// Integers are little-endian. Behind it come zeros up to the length that was asked for.
struct [[gnu::packed]] ProbeHeader {
  uint16_t magic;
  uint8_t version;
  ProbeKind kind;
  uint32_t id;     // of the request; the reply has the same
  uint64_t nonce;  // likewise: random, so that nobody who does not hear requests can answer them
  ProbeIdentity sender;
  uint8_t tos;          // with which the request was sent
  uint8_t arrived_tos;  // reply: with which it arrived; request: 0
  uint16_t arrived;     // reply: length of the IP packet that the request was in; request: 0
  uint32_t crc;         // CRC32C of the bytes behind this header, followed by the bytes of this header before `crc`
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

// Whether the payload of a datagram claims to be a probe.
[[nodiscard]] inline bool is_probe(std::span<const uint8_t> payload) noexcept {
  return payload.size() >= sizeof(kProbeMagic) && load<uint16_t>(payload.data()) == kProbeMagic;
}

// Fills `payload`, at least kLeastProbe bytes, with a probe. magic, version and crc of `header` are set here.
void write_probe(std::span<uint8_t> payload, ProbeHeader header) noexcept;

// The header of a probe of this version that is whole and undamaged; nothing for any other bytes. Reads nothing
// outside.
[[nodiscard]] std::optional<ProbeHeader> parse_probe(std::span<const uint8_t> payload) noexcept;

// The reply to a request that arrived with this ToS, in an IP packet of `arrived` bytes.
[[nodiscard]] ProbeHeader reply_to(const ProbeHeader& request, const ProbeIdentity& us, uint8_t arrived_tos,
                                   size_t arrived) noexcept;

// Who a node is, as its configuration says.
[[nodiscard]] ProbeIdentity probe_identity(const NodeConfig& config);

}  // namespace gradlane
