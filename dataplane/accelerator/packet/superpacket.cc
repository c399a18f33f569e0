// superpacket.cc - cutting and joining of TCP superpackets (worker thread only; no sockets, no DPDK)
#include "dataplane/accelerator/packet/superpacket.h"

#include <algorithm>
#include <cstring>

#include "collectives/crc32c.h"
#include "dataplane/frame/frame.h"
#include "dataplane/frame/internet.h"

namespace gradlane {
namespace {

using namespace internet;

constexpr uint16_t kEtherIpv6 = 0x86dd;
constexpr size_t kVlanBytes = 4;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kIpv6Length = 4, kIpv6Next = 6, kIpv6Source = 8, kIpv6Addresses = 32;
constexpr size_t kIpv4Addresses = 8;
constexpr size_t kMostLength = 65535;  // longest length that fits into an IP header
constexpr uint8_t kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kUrg = 32, kCwr = 128;

// Returns the sum of the pseudo-header, not folded. `length` is the length of the TCP header and payload.
uint64_t pseudo_sum(const uint8_t* frame, const TcpPlaces& places, size_t length) noexcept {
  const uint8_t* const ip = frame + places.ip;
  const uint64_t addresses =
      places.of_ipv6 ? ones_sum(ip + kIpv6Source, kIpv6Addresses) : ones_sum(ip + kIpSource, kIpv4Addresses);
  return addresses + __builtin_bswap16(kTcp) + __builtin_bswap16(static_cast<uint16_t>(length));
}

// Writes the length of an IP packet with `tcp_bytes` bytes of TCP into its IP header.
void set_length(uint8_t* frame, const TcpPlaces& places, size_t tcp_bytes) noexcept {
  uint8_t* const ip = frame + places.ip;
  const size_t behind_ip = places.tcp - places.ip + tcp_bytes;
  if (places.of_ipv6) return store16(ip + kIpv6Length, static_cast<uint16_t>(behind_ip - kIpv6Bytes));
  store16(ip + kIpLength, static_cast<uint16_t>(behind_ip));
}

// Returns the offset of the IP header, after the Ethernet header and up to two VLAN tags. 0: the frame is too short.
size_t find_ip(std::span<const uint8_t> frame, uint16_t& type) noexcept {
  size_t at = kEtherType;
  for (int tags = 0; at + 2 <= frame.size(); ++tags, at += kVlanBytes) {
    type = load16(frame.data() + at);
    if ((type != kEtherVlan && type != kEtherServiceVlan) || tags == 2) return at + 2;
  }
  return 0;
}

// Finds the headers of a TCP packet. IPv4's header says where TCP begins. IPv6 may have other headers before TCP's:
// then `tcp` must be the offset of TCP's header. With `tcp` 0, TCP must follow the IPv6 header. Returns offsets 0 if
// this is not TCP, or if the TCP header does not fit into the frame.
TcpPlaces find_tcp(std::span<const uint8_t> frame, size_t tcp) noexcept {
  uint16_t type = 0;
  TcpPlaces places;
  const size_t ip = find_ip(frame, type);
  if (ip == 0 || ip + kIpv4Bytes > frame.size()) return {};
  const uint8_t* const header = frame.data() + ip;
  if (type == kEtherIpv4) {
    const bool fine = header[0] >> 4 == 4 && (header[0] & 0xf) >= 5 && header[kIpProtocol] == kTcp &&
                      (load16(header + kIpFragment) & kFragmentBits) == 0;
    if (!fine) return {};
    places.tcp = ip + size_t{header[0] & 0xfU} * 4;
  } else {
    places.tcp = tcp == 0 ? ip + kIpv6Bytes : tcp;
    const bool fine = type == kEtherIpv6 && header[0] >> 4 == 6 && places.tcp >= ip + kIpv6Bytes;
    if (!fine || (tcp == 0 && header[kIpv6Next] != kTcp)) return {};
    places.of_ipv6 = true;
  }
  if (places.tcp + kTcpBytes > frame.size()) return {};
  places.payload = places.tcp + (size_t{frame[places.tcp + kTcpOffset]} >> 4 << 2);
  if (places.payload < places.tcp + kTcpBytes || places.payload > frame.size()) return {};
  places.ip = ip;
  return places;
}

constexpr uint16_t kSctpChecksum = 8;  // offset in SCTP's header; TCP and UDP have their checksums elsewhere

bool finish_checksum(const VnetHeader& header, std::span<uint8_t> frame) noexcept {
  const size_t start = header.checksum_start;
  const size_t field = start + header.checksum_field;
  if (start > frame.size() || field + 2 > frame.size()) return false;
  if (header.checksum_field == kSctpChecksum) {
    if (field + 4 > frame.size()) return false;
    store(frame.data() + field, uint32_t{0});
    store(frame.data() + field, ~crc32c(kCrcStart, frame.data() + start, frame.size() - start));
    return true;
  }
  const auto sum = static_cast<uint16_t>(~ones_sum(frame.data() + start, frame.size() - start));
  // A 0 would say that UDP has no checksum. 0xffff is as good for all other protocols.
  store(frame.data() + field, sum == 0 ? uint16_t{0xffff} : sum);
  return true;
}

}  // namespace

// ---- Cutting

bool SuperpacketCutter::begin(const VnetHeader& header, std::span<uint8_t> frame) noexcept {
  frame_ = {};
  at_ = segment_bytes_ = 0;
  const auto kind = static_cast<uint8_t>(header.kind & ~VnetHeader::kCongestionOnce);
  const bool checksum = (header.flags & VnetHeader::kNeedsChecksum) != 0;
  if (kind == VnetHeader::kOnePacket) {
    if (checksum && !finish_checksum(header, frame)) return false;
    frame_ = frame;
    return !frame.empty();
  }
  if (kind != VnetHeader::kTcpIpv4 && kind != VnetHeader::kTcpIpv6) return false;
  places_ = find_tcp(frame, checksum ? header.checksum_start : 0);
  if (places_.ip == 0 || places_.of_ipv6 != (kind == VnetHeader::kTcpIpv6)) return false;
  if (places_.payload == frame.size() || header.segment_bytes == 0) return false;
  if (places_.payload - places_.ip + header.segment_bytes > kMostLength) return false;
  congestion_once_ = kind != header.kind;
  pseudo_ = pseudo_sum(frame.data(), places_, 0);
  if (checksum) {
    if (header.checksum_start != places_.tcp || header.checksum_field != kTcpChecksum) return false;
    // With a routing header, the address in the IPv6 header is not the one that counts. The kernel knows the right one
    // and has put it into its sum.
    const size_t whole = frame.size() - places_.tcp;
    if (whole > kMostLength) return false;
    pseudo_ = uint64_t{load<uint16_t>(frame.data() + places_.tcp + kTcpChecksum)} +
              static_cast<uint16_t>(~__builtin_bswap16(static_cast<uint16_t>(whole)));
  }
  number_ = 0;
  frame_ = frame;
  at_ = places_.payload;
  segment_bytes_ = header.segment_bytes;
  return true;
}

size_t SuperpacketCutter::next_bytes() const noexcept {
  const size_t left = frame_.size() - at_;
  if (segment_bytes_ == 0 || left == 0) return left;
  return places_.payload + std::min(left, segment_bytes_);
}

void SuperpacketCutter::next(uint8_t* to) noexcept {
  const size_t bytes = next_bytes();
  if (segment_bytes_ == 0) {
    std::memcpy(to, frame_.data() + at_, bytes);
  } else {
    const size_t payload = bytes - places_.payload;
    std::memcpy(to, frame_.data(), places_.payload);
    std::memcpy(to + places_.payload, frame_.data() + at_, payload);
    write_headers(to, bytes, at_ + payload == frame_.size());
  }
  skip();
}

void SuperpacketCutter::skip() noexcept {
  const size_t bytes = next_bytes();
  at_ += segment_bytes_ == 0 ? bytes : bytes - places_.payload;
  ++number_;
}

void SuperpacketCutter::write_headers(uint8_t* to, size_t bytes, bool last) const noexcept {
  const size_t tcp_bytes = bytes - places_.tcp;
  uint8_t* const ip = to + places_.ip;
  uint8_t* const tcp = to + places_.tcp;
  set_length(to, places_, tcp_bytes);
  if (!places_.of_ipv6) {
    store16(ip + kIpId, static_cast<uint16_t>(load16(ip + kIpId) + number_));
    seal(ip, places_.tcp - places_.ip, kIpChecksum);
  }
  store32(tcp + kTcpSequence, load32(tcp + kTcpSequence) + static_cast<uint32_t>(at_ - places_.payload));
  if (!last) tcp[kTcpFlags] &= static_cast<uint8_t>(~(kFin | kPsh));
  if (number_ != 0 && congestion_once_) tcp[kTcpFlags] &= static_cast<uint8_t>(~kCwr);
  store(tcp + kTcpChecksum, uint16_t{0});
  const uint64_t length = __builtin_bswap16(static_cast<uint16_t>(tcp_bytes));
  store(tcp + kTcpChecksum, static_cast<uint16_t>(~fold(pseudo_ + length + ones_sum(tcp, tcp_bytes))));
}

// ---- Joining

namespace {

// Returns whether a packet can be joined: its frame ends with the IP packet, which has payload and nothing that belongs
// to one packet alone.
bool may_join(std::span<const uint8_t> frame, const TcpPlaces& places) noexcept {
  if (places.ip != kEthernetBytes || places.payload == frame.size()) return false;
  if (places.payload > SuperpacketJoiner::kMostHeader) return false;
  const uint8_t* const ip = frame.data() + places.ip;
  const size_t length = places.of_ipv6 ? kIpv6Bytes + load16(ip + kIpv6Length) : load16(ip + kIpLength);
  if (length != frame.size() - places.ip) return false;
  if (!places.of_ipv6 && (places.tcp != places.ip + kIpv4Bytes || (ip[kIpFragment] & 0x80) != 0)) return false;
  return (frame[places.tcp + kTcpFlags] & (kFin | kSyn | kRst | kUrg | kCwr)) == 0;
}

bool checksums_right(std::span<const uint8_t> frame, const TcpPlaces& places) noexcept {
  if (!places.of_ipv6 && plain_header_sum(frame.data() + places.ip) != 0xffff) return false;
  const size_t bytes = frame.size() - places.tcp;
  return fold(pseudo_sum(frame.data(), places, bytes) + ones_sum(frame.data() + places.tcp, bytes)) == 0xffff;
}

bool same(const uint8_t* a, const uint8_t* b, size_t from, size_t to) noexcept {
  return std::memcmp(a + from, b + from, to - from) == 0;
}

}  // namespace

bool SuperpacketJoiner::begin(std::span<const uint8_t> frame) noexcept {
  count_ = 0;
  places_ = find_tcp(frame, 0);
  if (!may_join(frame, places_)) return false;
  first_ = frame;
  first_is_right_ = false;
  segment_bytes_ = payload_bytes_ = frame.size() - places_.payload;
  next_seq_ = load32(frame.data() + places_.tcp + kTcpSequence) + static_cast<uint32_t>(payload_bytes_);
  last_id_ = load16(frame.data() + places_.ip + kIpId);
  pushed_ = frame[places_.tcp + kTcpFlags] & kPsh;
  closed_ = pushed_ != 0;
  parts_[count_++] = frame.subspan(places_.payload);
  return true;
}

// Returns whether a packet has the headers of the first packet, except for fields that change from packet to packet.
bool SuperpacketJoiner::follows(std::span<const uint8_t> frame, const TcpPlaces& places) const noexcept {
  if (places.of_ipv6 != places_.of_ipv6 || places.tcp != places_.tcp || places.payload != places_.payload) return false;
  const uint8_t* const a = first_.data();
  const uint8_t* const b = frame.data();
  const size_t ip = places.ip, tcp = places.tcp;
  if (!same(a, b, 0, ip + kIpLength)) return false;
  if (places.of_ipv6) {
    if (!same(a, b, ip + kIpTos, ip + kIpv6Length) || !same(a, b, ip + kIpv6Next, tcp)) return false;
  } else {
    if (!same(a, b, ip + kIpFragment, ip + kIpChecksum) || !same(a, b, ip + kIpSource, tcp)) return false;
    // The identification has no meaning if nobody may fragment the packet.
    const bool whole = (load16(b + ip + kIpFragment) & kDontFragment) != 0;
    if (!whole && load16(b + ip + kIpId) != static_cast<uint16_t>(last_id_ + 1)) return false;
  }
  return same(a, b, tcp, tcp + kTcpSequence) && load32(b + tcp + kTcpSequence) == next_seq_ &&
         same(a, b, tcp + kTcpAck, tcp + kTcpFlags) && ((a[tcp + kTcpFlags] ^ b[tcp + kTcpFlags]) & ~kPsh) == 0 &&
         same(a, b, tcp + kTcpWindow, tcp + kTcpChecksum) && same(a, b, tcp + kTcpUrgent, places.payload);
}

bool SuperpacketJoiner::add(std::span<const uint8_t> frame) noexcept {
  if (closed_ || count_ == 0 || count_ == kMostPackets) return false;
  const TcpPlaces places = find_tcp(frame, 0);
  if (!may_join(frame, places) || !follows(frame, places)) return false;
  const size_t payload = frame.size() - places.payload;
  if (payload > segment_bytes_ || places.payload - places.ip + payload_bytes_ + payload > kMostLength) return false;
  if (!first_is_right_ && !checksums_right(first_, places_)) {
    closed_ = true;
    return false;
  }
  first_is_right_ = true;
  if (!checksums_right(frame, places)) return false;
  payload_bytes_ += payload;
  next_seq_ += static_cast<uint32_t>(payload);
  last_id_ = places.of_ipv6 ? uint16_t{0} : load16(frame.data() + places.ip + kIpId);
  pushed_ = frame[places.tcp + kTcpFlags] & kPsh;
  closed_ = pushed_ != 0 || payload < segment_bytes_;
  parts_[count_++] = frame.subspan(places.payload);
  return true;
}

void SuperpacketJoiner::finish() noexcept {
  std::memcpy(front_.data(), first_.data(), places_.payload);
  uint8_t* const tcp = front_.data() + places_.tcp;
  const size_t tcp_bytes = places_.payload - places_.tcp + payload_bytes_;
  set_length(front_.data(), places_, tcp_bytes);
  if (!places_.of_ipv6) seal(front_.data() + places_.ip, kIpv4Bytes, kIpChecksum);
  tcp[kTcpFlags] |= pushed_;
  store(tcp + kTcpChecksum, fold(pseudo_sum(front_.data(), places_, tcp_bytes)));
  header_ = {.flags = VnetHeader::kNeedsChecksum,
             .kind = places_.of_ipv6 ? VnetHeader::kTcpIpv6 : VnetHeader::kTcpIpv4,
             .header_bytes = static_cast<uint16_t>(places_.payload),
             .segment_bytes = static_cast<uint16_t>(segment_bytes_),
             .checksum_start = static_cast<uint16_t>(places_.tcp),
             .checksum_field = kTcpChecksum};
}

}  // namespace gradlane
