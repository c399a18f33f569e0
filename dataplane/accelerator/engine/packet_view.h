// packet_view.h - the fields of a frame that the accelerator reads, and changes of a few fields (worker thread; pure
// functions)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/frame/internet.h"

namespace gradlane::accel {

// The addresses of a flow, in host byte order. The source is the sender of the packet.
struct FlowKey {
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t protocol = 0;  // kTcpProtocol or kUdpProtocol

  bool operator==(const FlowKey&) const = default;
  [[nodiscard]] FlowKey reversed() const noexcept {
    return {destination_ip, source_ip, destination_port, source_port, protocol};
  }
};

inline constexpr uint8_t kTcpProtocol = internet::kTcp, kUdpProtocol = internet::kUdp;
inline constexpr uint8_t kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16, kUrg = 32;
// TCP segments with any of these are never compressed.
inline constexpr uint8_t kNeverCompressed = kFin | kSyn | kRst | kUrg;
inline constexpr uint8_t kEcnMask = internet::kEcnBits;  // the bits of the ToS byte that are not the code point

enum class Layer : uint8_t {
  kOther,          // not plain Ethernet with IPv4: VLAN, IPv6, ARP, bad version
  kBroken,         // IPv4 with an impossible header, or with a length beyond the end of the frame
  kIpv4,           // IPv4 without a TCP or UDP payload to look at: other protocols, later fragments, bad lengths
  kOptions,        // TCP or UDP with IP options: key and TCP fields are valid, but it must not be compressed
  kFirstFragment,  // first fragment of TCP or UDP with the L4 header, with or without IP options; treated like kOptions
  kTcp,
  kUdp
};

struct PacketView {
  Layer layer = Layer::kOther;
  // Fields that are valid from kBroken on:
  uint8_t tos = 0;
  bool reserved_bit = false;  // reserved bit of the IP flags
  // Fields that are valid from kIpv4 on:
  size_t ip_bytes = 0;  // length of the IP header
  size_t length = 0;    // length of the IP packet; the frame may be longer (padding)
  // Fields that are valid from kOptions on:
  FlowKey key{};
  size_t l4 = 0, payload = 0;  // offsets of the TCP or UDP header and of the payload, from the start of the frame
  size_t payload_bytes = 0;    // payload in this frame
  uint32_t seq = 0, ack = 0;   // TCP
  uint8_t flags = 0;           // TCP: kFin to kUrg, and ECE (64) and CWR (128)
  uint16_t window = 0;         // TCP
};

// Returns the view of a frame. Reads nothing outside `frame`, whatever bytes are in it, and verifies no checksum. A UDP
// packet whose UDP length differs from the length of the IP payload is kIpv4: compression would lose the bytes after
// the datagram.
[[nodiscard]] PacketView view_packet(std::span<const uint8_t> frame) noexcept;

// Returns whether headers and shape allow a packet to be compressed. It must be kUdp, or kTcp with none of
// kNeverCompressed, and it must have a payload. The reserved bit must be clear, because it has a meaning of its own on
// the wire (docs/accelerator.md).
[[nodiscard]] inline bool may_compress(const PacketView& view) noexcept {
  return (view.layer == Layer::kUdp || (view.layer == Layer::kTcp && (view.flags & kNeverCompressed) == 0)) &&
         view.payload_bytes != 0 && !view.reserved_bit;
}

// Returns whether a frame is a super-segment of an offload. There are two cases. The frame is longer than an Ethernet
// header (with its VLAN tags) and `mtu` bytes. Or its IPv4 length is larger than `mtu` and than the frame, because a
// device has cut off the frame.
[[nodiscard]] bool too_long(std::span<const uint8_t> frame, size_t mtu) noexcept;

// ---- Checksums (RFC 1071) and the fields that they cover (RFC 1624). `frame` is one that view_packet() says is IPv4.

[[nodiscard]] bool ip_checksum_right(const uint8_t* frame) noexcept;
[[nodiscard]] uint32_t source_ip(const uint8_t* frame) noexcept;

// Functions on L4 checksums are for kOptions, kTcp and kUdp, the layers of packets that are no fragments.

// Returns whether the checksum is right. A UDP checksum of 0 (none) is right.
[[nodiscard]] bool l4_checksum_right(const uint8_t* frame, const PacketView& view) noexcept;

// Returns whether the checksum field has only the sum of the pseudo-header. A kernel writes that if its device must
// compute the rest ("tx off" was not set). Returns false if that sum happens to be the right checksum. The function is
// cheap: it reads the payload only if the field has that sum.
[[nodiscard]] bool l4_checksum_unfinished(const uint8_t* frame, const PacketView& view) noexcept;

// Computes the checksum of the packet as it is now. The result is never 0 for UDP.
void set_l4_checksum(uint8_t* frame, const PacketView& view) noexcept;

// Each changes one field, and adjusts the IP header checksum by the difference. So a wrong checksum stays wrong.
// set_tos() sets all 8 bits.
void set_tos(uint8_t* frame, uint8_t tos) noexcept;
void set_reserved_bit(uint8_t* frame, bool value) noexcept;
void set_length(uint8_t* frame, size_t ip_length) noexcept;

}  // namespace gradlane::accel
