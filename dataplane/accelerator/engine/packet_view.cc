// packet_view.cc - views of frames, and changes of fields under checksums (worker thread; pure functions)
#include "dataplane/accelerator/engine/packet_view.h"

#include "dataplane/frame/frame.h"

namespace gradlane::accel {
namespace {

using namespace internet;

constexpr size_t kVlanTagBytes = 4;

// Reads a TCP segment into `view`. `bytes` of its bytes are in the frame. Returns false if its header does not fit into
// them.
bool view_tcp(const uint8_t* tcp, size_t bytes, PacketView& view) noexcept {
  if (bytes < kTcpBytes) return false;
  const size_t header = size_t{tcp[kTcpOffset]} >> 4 << 2;
  if (header < kTcpBytes || header > bytes) return false;
  view.payload = view.l4 + header;
  view.payload_bytes = bytes - header;
  view.seq = load32(tcp + kTcpSequence);
  view.ack = load32(tcp + kTcpAck);
  view.flags = tcp[kTcpFlags];
  view.window = load16(tcp + kTcpWindow);
  return true;
}

bool view_udp(const uint8_t* udp, size_t bytes, bool whole, PacketView& view) noexcept {
  if (bytes < kUdpBytes) return false;
  const size_t length = load16(udp + kUdpLength);
  if (whole ? length != bytes : length < kUdpBytes) return false;
  view.payload = view.l4 + kUdpBytes;
  view.payload_bytes = bytes - kUdpBytes;
  return true;
}

// Reads the headers after the IP header into `view`. Returns the layer.
Layer view_l4(const uint8_t* ip, PacketView& view) noexcept {
  const uint16_t fragment = load16(ip + kIpFragment);
  const uint8_t protocol = ip[kIpProtocol];
  if ((fragment & kFragmentOffset) != 0 || (protocol != kTcp && protocol != kUdp)) return Layer::kIpv4;
  const bool whole = (fragment & kMoreFragments) == 0;
  const uint8_t* const l4 = ip + view.ip_bytes;
  const size_t bytes = view.length - view.ip_bytes;
  view.l4 = kEthernetBytes + view.ip_bytes;
  if (!(protocol == kTcp ? view_tcp(l4, bytes, view) : view_udp(l4, bytes, whole, view))) return Layer::kIpv4;
  view.key = {load32(ip + kIpSource), load32(ip + kIpDestination), load16(l4), load16(l4 + 2), protocol};
  if (!whole) return Layer::kFirstFragment;
  if (view.ip_bytes != kIpv4Bytes) return Layer::kOptions;
  return protocol == kTcp ? Layer::kTcp : Layer::kUdp;
}

const uint8_t* checksum_field(const uint8_t* frame, const PacketView& view) noexcept {
  return frame + view.l4 + (view.key.protocol == kUdp ? kUdpChecksum : kTcpChecksum);
}

uint64_t pseudo_sum(const uint8_t* frame, const PacketView& view) noexcept {
  return pseudo_header_sum(frame + kEthernetBytes, view.key.protocol, view.length - view.ip_bytes);
}

bool l4_sum_right(const uint8_t* frame, const PacketView& view) noexcept {
  return fold(pseudo_sum(frame, view) + ones_sum(frame + view.l4, view.length - view.ip_bytes)) == 0xffff;
}

}  // namespace

PacketView view_packet(std::span<const uint8_t> frame) noexcept {
  PacketView view;
  // A shorter frame lacks header fields that the accelerator reads or changes.
  if (frame.size() < kEthernetBytes + kIpSource || load16(frame.data() + kEtherType) != kEtherIpv4) return view;
  const uint8_t* const ip = frame.data() + kEthernetBytes;
  const size_t header = size_t{ip[0] & 0xfU} * 4;
  const size_t length = load16(ip + kIpLength);
  if (ip[0] >> 4 != 4) return view;
  view.layer = Layer::kBroken;
  view.tos = ip[kIpTos];
  view.reserved_bit = (load16(ip + kIpFragment) & kReservedFlag) != 0;
  if (frame.size() < kEthernetBytes + kIpv4Bytes || header < kIpv4Bytes || length < header ||
      length > frame.size() - kEthernetBytes)
    return view;
  view.ip_bytes = header;
  view.length = length;
  view.layer = view_l4(ip, view);
  return view;
}

bool too_long(std::span<const uint8_t> frame, size_t mtu) noexcept {
  if (frame.size() < kEthernetBytes + kIpv4Bytes) return false;
  size_t most = kEthernetBytes + mtu;
  const uint16_t type = load16(frame.data() + kEtherType);
  if (type == kEtherVlan || type == kEtherServiceVlan) {
    most += kVlanTagBytes;
    if (load16(frame.data() + kEtherType + kVlanTagBytes) == kEtherVlan) most += kVlanTagBytes;
  }
  if (frame.size() > most) return true;
  const size_t length = load16(frame.data() + kEthernetBytes + kIpLength);
  return type == kEtherIpv4 && frame[kEthernetBytes] >> 4 == 4 && length > mtu &&
         length > frame.size() - kEthernetBytes;
}

bool ip_checksum_right(const uint8_t* frame) noexcept {
  const uint8_t* const ip = frame + kEthernetBytes;
  const size_t header = size_t{ip[0] & 0xfU} * 4;
  return (header == kIpv4Bytes ? plain_header_sum(ip) : ones_sum(ip, header)) == 0xffff;
}

uint32_t source_ip(const uint8_t* frame) noexcept { return load32(frame + kEthernetBytes + kIpSource); }

bool l4_checksum_right(const uint8_t* frame, const PacketView& view) noexcept {
  if (view.key.protocol == kUdp && load<uint16_t>(checksum_field(frame, view)) == 0) return true;
  return l4_sum_right(frame, view);
}

bool l4_checksum_unfinished(const uint8_t* frame, const PacketView& view) noexcept {
  const auto field = load<uint16_t>(checksum_field(frame, view));
  return field == fold(pseudo_sum(frame, view)) && !l4_sum_right(frame, view);
}

void set_l4_checksum(uint8_t* frame, const PacketView& view) noexcept {
  seal_l4(frame + kEthernetBytes, frame + view.l4, view.key.protocol, view.length - view.ip_bytes);
}

void set_tos(uint8_t* frame, uint8_t tos) noexcept {
  uint8_t* const ip = frame + kEthernetBytes;
  change16(ip, static_cast<uint16_t>(ip[0] << 8 | tos), ip + kIpChecksum);
}

void set_reserved_bit(uint8_t* frame, bool value) noexcept {
  uint8_t* const ip = frame + kEthernetBytes;
  const unsigned others = load16(ip + kIpFragment) & ~unsigned{kReservedFlag};
  change16(ip + kIpFragment, static_cast<uint16_t>(others | (value ? kReservedFlag : 0U)), ip + kIpChecksum);
}

void set_length(uint8_t* frame, size_t ip_length) noexcept {
  uint8_t* const ip = frame + kEthernetBytes;
  change16(ip + kIpLength, static_cast<uint16_t>(ip_length), ip + kIpChecksum);
}

}  // namespace gradlane::accel
