// packet_view.h - what the accelerator sees of a frame, and the few fields it changes (worker thread; pure functions)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/frame/internet.h"

namespace gradlane::accel {

// Host byte order; source is the sender of the packet.
struct FlowKey {
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t protocol = 0;  // kTcpProtocol, kUdpProtocol

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
  kBroken,         // IPv4 whose header says what cannot be, or that there is more than there is
  kIpv4,           // IPv4, but no TCP or UDP with a payload to look at: other protocols, later fragments, bad lengths
  kOptions,        // TCP or UDP with IP options: the key and the TCP fields are right; not to be compressed
  kFirstFragment,  // first fragment of a TCP or UDP packet, with the L4 header in it: likewise; IP options or not
  kTcp,
  kUdp
};

struct PacketView {
  Layer layer = Layer::kOther;
  // From kBroken on:
  uint8_t tos = 0;
  bool reserved_bit = false;  // of the IP flags
  // From kIpv4 on:
  size_t ip_bytes = 0;  // header
  size_t length = 0;    // of the IP packet; the frame may be longer (padding)
  // From kOptions on:
  FlowKey key{};
  size_t l4 = 0, payload = 0;  // offsets from the start of the frame
  size_t payload_bytes = 0;    // in this frame
  uint32_t seq = 0, ack = 0;   // TCP
  uint8_t flags = 0;           // TCP: kFin to kUrg, and ECE (64) and CWR (128)
  uint16_t window = 0;         // TCP
};

// Reads nothing outside `frame`, whatever it contains, and verifies no checksum. UDP whose length is not that of the
// IP packet is kIpv4: what stands behind the datagram must not be lost.
[[nodiscard]] PacketView view_packet(std::span<const uint8_t> frame) noexcept;

// Whether headers and shape allow a packet to be compressed: kTcp with none of kNeverCompressed or kUdp, with payload,
// and without the reserved bit, which has a meaning of its own on the wire (docs/accelerator.md).
[[nodiscard]] inline bool may_compress(const PacketView& view) noexcept {
  return (view.layer == Layer::kUdp || (view.layer == Layer::kTcp && (view.flags & kNeverCompressed) == 0)) &&
         view.payload_bytes != 0 && !view.reserved_bit;
}

// A super-segment of an offload: the frame is longer than an Ethernet header (with VLAN tag if it has one) and mtu
// bytes, or its IPv4 length is, and a device has cut the frame.
[[nodiscard]] bool too_long(std::span<const uint8_t> frame, size_t mtu) noexcept;

// ---- Checksums (RFC 1071) and fields under them (RFC 1624). `frame` is one that view_packet() says is IPv4.

[[nodiscard]] bool ip_checksum_right(const uint8_t* frame) noexcept;
[[nodiscard]] uint32_t source_ip(const uint8_t* frame) noexcept;

// The rest is for kOptions, kTcp and kUdp: packets that are whole.

// A UDP checksum of 0 (none) is right.
[[nodiscard]] bool l4_checksum_right(const uint8_t* frame, const PacketView& view) noexcept;

// The field has the sum of the pseudo-header alone, what a kernel leaves to its device ("tx off" was not said), and
// that is not the right checksum by chance. Cheap: looks at the payload only where the sum is there.
[[nodiscard]] bool l4_checksum_unfinished(const uint8_t* frame, const PacketView& view) noexcept;

// Over the packet as it is now; for UDP never 0.
void set_l4_checksum(uint8_t* frame, const PacketView& view) noexcept;

// These change one field and the header checksum by as much: one that was wrong stays wrong. All 8 bits of the ToS.
void set_tos(uint8_t* frame, uint8_t tos) noexcept;
void set_reserved_bit(uint8_t* frame, bool value) noexcept;
void set_length(uint8_t* frame, size_t ip_length) noexcept;

}  // namespace gradlane::accel
