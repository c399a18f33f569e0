// frame.cc - parsing, answering and writing frames (worker threads; pure functions)
#include "dataplane/frame/frame.h"

#include <cstring>

#include "collectives/wire.h"
#include "dataplane/frame/internet.h"
#include "dataplane/frame/probe.h"

namespace gradlane {
namespace {

using namespace internet;

// ---- Offsets of fields that only this file uses, from the start of the header of their protocol.

constexpr MacAddress kBroadcastMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

constexpr size_t kArpOperation = 6, kArpSenderMac = 8, kArpSenderIp = 14, kArpTargetMac = 18, kArpTargetIp = 24;
// hardware type, protocol type, and the lengths of both kinds of addresses
constexpr uint64_t kArpOfIpv4 = 0x0001'0800'0604;
constexpr uint16_t kArpRequest = 1, kArpReply = 2;

constexpr size_t kIcmpBytes = 8, kIcmpChecksum = 2;
constexpr uint16_t kEchoRequest = 0x0800;  // type and code

constexpr uint32_t kFirstGroupIp = 0xe0000000;  // addresses from here on are multicast, reserved or broadcast

// ---- Bytes

MacAddress load_mac(const uint8_t* from) noexcept {
  MacAddress mac;
  std::memcpy(mac.data(), from, mac.size());
  return mac;
}
void store_mac(uint8_t* to, const MacAddress& mac) noexcept { std::memcpy(to, mac.data(), mac.size()); }

// Returns a MAC address as a number, so that one instruction compares two of them. The order of the bytes does not
// matter.
uint64_t mac_key(const uint8_t* mac) noexcept { return load<uint32_t>(mac) | uint64_t{load<uint16_t>(mac + 4)} << 32; }
bool is_group(const uint8_t* mac) noexcept { return (mac[0] & 1) != 0; }

// ---- Parsing. Each function fills in its part of `parsed` and returns the verdict.

FrameVerdict parse_arp(std::span<const uint8_t> frame, const LocalAddress& local, ParsedFrame& parsed) noexcept {
  if (frame.size() < kArpFrameBytes) return FrameVerdict::kRunt;
  const uint8_t* const mac = frame.data() + kDestinationMac;
  if (mac_key(mac) != mac_key(local.mac.data()) && mac_key(mac) != mac_key(kBroadcastMac.data())) {
    return FrameVerdict::kNotForUs;
  }
  const uint8_t* const arp = frame.data() + kEthernetBytes;
  const uint64_t types = uint64_t{load16(arp)} << 32 | load32(arp + 2);
  const uint16_t operation = load16(arp + kArpOperation);
  if (types != kArpOfIpv4 || (operation != kArpRequest && operation != kArpReply)) return FrameVerdict::kBadArp;
  // A station cannot have a group address (RFC 1812, 3.3.2).
  if (is_group(arp + kArpSenderMac)) return FrameVerdict::kBadArp;
  parsed.source_ip = load32(arp + kArpSenderIp);
  parsed.source_mac = load_mac(arp + kArpSenderMac);
  // Every ARP packet counts, whatever it asks: its sender uses the sender address (RFC 5227, 2.4).
  if (parsed.source_ip == local.ip || parsed.source_ip == 0) {
    // A switch may send back our own probe and announcement.
    if (parsed.source_mac == local.mac) return FrameVerdict::kNotForUs;
    if (parsed.source_ip != 0) return FrameVerdict::kRival;
  }
  if (load32(arp + kArpTargetIp) != local.ip) {
    parsed.asked_ip = load32(arp + kArpTargetIp);
    return FrameVerdict::kNotForUs;
  }
  return FrameVerdict::kArp;
}

// Parses an ICMP packet. The IP packet has `length` bytes, of which `header` bytes are the IP header.
FrameVerdict parse_icmp(const uint8_t* frame, size_t header, size_t length, ParsedFrame& parsed) noexcept {
  const uint8_t* const ip = frame + kEthernetBytes;
  if (length - header < kIcmpBytes) return FrameVerdict::kRunt;
  if (load16(ip + header) != kEchoRequest) return FrameVerdict::kHost;
  if (header != kIpv4Bytes) return FrameVerdict::kIpOptions;
  // An answer to such a source would reach many hosts or none (RFC 1122, 3.2.2).
  const uint32_t source = load32(ip + kIpSource);
  if (source == 0 || source >= kFirstGroupIp || is_group(frame + kSourceMac)) return FrameVerdict::kHost;
  if (ones_sum(ip + header, length - header) != 0xffff) return FrameVerdict::kBadChecksum;
  parsed.source_ip = source;
  parsed.bytes = length - header;
  return FrameVerdict::kEcho;
}

FrameVerdict parse_udp(const uint8_t* ip, size_t header, size_t length, const LocalAddress& local,
                       ParsedFrame& parsed) noexcept {
  if (length - header < kUdpBytes) return FrameVerdict::kBadUdp;
  const uint8_t* const udp = ip + header;
  const uint16_t destination = load16(udp + kUdpDestination);
  if (unsigned{destination} - local.udp_port >= local.udp_ports) return FrameVerdict::kHost;
  if (header != kIpv4Bytes) return FrameVerdict::kIpOptions;
  const size_t udp_length = load16(udp + kUdpLength);
  if (udp_length < kUdpBytes || udp_length > length - header) return FrameVerdict::kBadUdp;
  parsed.source_ip = load32(ip + kIpSource);
  parsed.source_port = load16(udp + kUdpSource);
  parsed.destination_port = destination;
  parsed.bytes = udp_length - kUdpBytes;
  return is_probe({udp + kUdpBytes, parsed.bytes}) ? FrameVerdict::kProbe : FrameVerdict::kGradlane;
}

FrameVerdict parse_ipv4(std::span<const uint8_t> frame, const LocalAddress& local, const Classifier& classifier,
                        ParsedFrame& parsed) noexcept {
  if (frame.size() < kEthernetBytes + kIpv4Bytes) return FrameVerdict::kRunt;
  // RFC 1122, 3.3.6: a broadcast frame with our IP address is dropped too, as no well-behaved host sends one.
  if (mac_key(frame.data() + kDestinationMac) != mac_key(local.mac.data())) return FrameVerdict::kNotForUs;
  const uint8_t* const ip = frame.data() + kEthernetBytes;
  const size_t header = size_t{ip[0] & 0xfU} * 4;
  const size_t length = load16(ip + kIpLength);
  if (ip[0] >> 4 != 4 || header < kIpv4Bytes || length < header) return FrameVerdict::kBadIpHeader;
  if (length > frame.size() - kEthernetBytes) return FrameVerdict::kRunt;
  const uint16_t sum = header == kIpv4Bytes ? plain_header_sum(ip) : ones_sum(ip, header);
  if (sum != 0xffff) return FrameVerdict::kBadIpHeader;

  parsed.tos = ip[kIpTos];
  parsed.traffic = classifier.classify(parsed.tos);
  if (load32(ip + kIpDestination) != local.ip) return FrameVerdict::kNotForUs;
  if ((load16(ip + kIpFragment) & kFragmentBits) != 0) return FrameVerdict::kFragment;
  if (ip[kIpProtocol] == kIcmp) return parse_icmp(frame.data(), header, length, parsed);
  if (ip[kIpProtocol] != kUdp) return FrameVerdict::kHost;
  const FrameVerdict verdict = parse_udp(ip, header, length, local, parsed);
  return parsed.traffic == TrafficClass::kHost && verdict != FrameVerdict::kProbe ? FrameVerdict::kHost : verdict;
}

}  // namespace

// ---- Traffic classes

TrafficClass class_of(const uint8_t* packet, size_t bytes) noexcept {
  const auto header = load<LinkHeader>(packet);
  if (header.kind != PacketKind::kData || bytes < sizeof(LinkHeader) + sizeof(RunHeader)) return TrafficClass::kControl;
  const auto run = load<RunHeader>(packet + sizeof(LinkHeader));
  const bool elements = run.phase == Phase::kReduce || run.phase == Phase::kGather;
  if (!elements) return TrafficClass::kControl;
  return run.codec == static_cast<uint8_t>(kNoCodec) ? TrafficClass::kRaw : TrafficClass::kCompressed;
}

Classifier::Classifier(uint8_t compressed, uint8_t raw, uint8_t control) noexcept : tos_{compressed, raw, control, 0} {
  table_.fill(TrafficClass::kHost);
  for (size_t i = 0; i < static_cast<size_t>(TrafficClass::kHost); ++i) {
    tos_[i] = static_cast<uint8_t>(tos_[i] & ~kEcnBits);
    for (unsigned ecn = 0; ecn <= kEcnBits; ++ecn) table_[tos_[i] | ecn] = static_cast<TrafficClass>(i);
  }
}

// ---- Receiving

ParsedFrame parse_frame(std::span<const uint8_t> frame, const LocalAddress& local,
                        const Classifier& classifier) noexcept {
  ParsedFrame parsed;
  if (frame.size() < kEthernetBytes) return parsed;
  const uint16_t type = load16(frame.data() + kEtherType);
  if (type == kEtherIpv4) {
    parsed.verdict = parse_ipv4(frame, local, classifier, parsed);
  } else if (type == kEtherArp) {
    parsed.verdict = parse_arp(frame, local, parsed);
  } else {
    parsed.verdict = FrameVerdict::kOtherEtherType;
  }
  return parsed;
}

// ---- Answering

namespace {

size_t answer_arp(uint8_t* frame, const LocalAddress& local) noexcept {
  uint8_t* const arp = frame + kEthernetBytes;
  if (load16(arp + kArpOperation) != kArpRequest) return 0;
  const MacAddress asker = load_mac(arp + kArpSenderMac);
  const uint32_t asker_ip = load32(arp + kArpSenderIp);
  store_mac(frame + kDestinationMac, asker);
  store_mac(frame + kSourceMac, local.mac);
  store16(arp + kArpOperation, kArpReply);
  store_mac(arp + kArpSenderMac, local.mac);
  store32(arp + kArpSenderIp, local.ip);
  store_mac(arp + kArpTargetMac, asker);
  store32(arp + kArpTargetIp, asker_ip);
  return kArpFrameBytes;
}

// The reply has the data, the identifiers and the ToS of the request (RFC 1122, 3.2.2.6).
size_t answer_echo(uint8_t* frame, const ParsedFrame& parsed, const LocalAddress& local) noexcept {
  store_mac(frame + kDestinationMac, load_mac(frame + kSourceMac));
  store_mac(frame + kSourceMac, local.mac);
  uint8_t* const ip = frame + kEthernetBytes;
  store32(ip + kIpDestination, parsed.source_ip);
  store32(ip + kIpSource, local.ip);
  ip[kIpTtl] = kTtl;
  seal(ip, kIpv4Bytes, kIpChecksum);
  uint8_t* const icmp = ip + kIpv4Bytes;
  store16(icmp, 0);  // echo reply
  seal(icmp, parsed.bytes, kIcmpChecksum);
  return kEthernetBytes + kIpv4Bytes + parsed.bytes;
}

}  // namespace

size_t answer_frame(std::span<uint8_t> frame, const ParsedFrame& parsed, const LocalAddress& local) noexcept {
  if (parsed.verdict == FrameVerdict::kArp) return answer_arp(frame.data(), local);
  if (parsed.verdict == FrameVerdict::kEcho) return answer_echo(frame.data(), parsed, local);
  return 0;
}

// ---- Sending

void write_headers(uint8_t* frame, const Flow& flow, uint8_t tos, size_t bytes) noexcept {
  store_mac(frame + kDestinationMac, flow.destination_mac);
  store_mac(frame + kSourceMac, flow.source_mac);
  store16(frame + kEtherType, kEtherIpv4);

  // The checksum is computed from the values instead of the bytes. Loads that are wider than the preceding stores would
  // stall.
  const auto version_tos = static_cast<uint16_t>(0x4500 | tos);
  const auto length = static_cast<uint16_t>(kIpv4Bytes + kUdpBytes + bytes);
  const auto ttl_protocol = static_cast<uint16_t>(kTtl << 8 | kUdp);
  const uint64_t sum =
      uint64_t{version_tos} + length + kDontFragment + ttl_protocol + flow.source_ip + flow.destination_ip;
  uint8_t* const ip = frame + kEthernetBytes;
  store16(ip, version_tos);
  store16(ip + kIpLength, length);
  store16(ip + kIpId, 0);  // meaningless, as the packet is never fragmented (RFC 6864)
  store16(ip + kIpFragment, kDontFragment);
  store16(ip + kIpTtl, ttl_protocol);
  store16(ip + kIpChecksum, static_cast<uint16_t>(~fold(sum)));
  store32(ip + kIpSource, flow.source_ip);
  store32(ip + kIpDestination, flow.destination_ip);

  uint8_t* const udp = ip + kIpv4Bytes;
  store16(udp + kUdpSource, flow.source_port);
  store16(udp + kUdpDestination, flow.destination_port);
  store16(udp + kUdpLength, static_cast<uint16_t>(kUdpBytes + bytes));
  store16(udp + kUdpChecksum, 0);
}

void seal_udp(uint8_t* frame, size_t bytes) noexcept {
  uint8_t* const ip = frame + kEthernetBytes;
  seal_l4(ip, ip + kIpv4Bytes, kUdp, kUdpBytes + bytes);
}

void begin_udp_checksum(uint8_t* frame) noexcept {
  const uint8_t* const ip = frame + kEthernetBytes;
  const uint16_t sum = fold(pseudo_header_sum(ip, kUdp, load16(ip + kIpv4Bytes + kUdpLength)));
  store(frame + kEthernetBytes + kIpv4Bytes + kUdpChecksum, sum);
}

bool has_udp_checksum(const uint8_t* frame) noexcept {
  return load<uint16_t>(frame + kEthernetBytes + kIpv4Bytes + kUdpChecksum) != 0;
}

void write_arp_request(uint8_t* frame, const LocalAddress& local, uint32_t ip) noexcept {
  store_mac(frame + kDestinationMac, kBroadcastMac);
  store_mac(frame + kSourceMac, local.mac);
  store16(frame + kEtherType, kEtherArp);
  uint8_t* const arp = frame + kEthernetBytes;
  store16(arp, static_cast<uint16_t>(kArpOfIpv4 >> 32));
  store32(arp + 2, static_cast<uint32_t>(kArpOfIpv4));
  store16(arp + kArpOperation, kArpRequest);
  store_mac(arp + kArpSenderMac, local.mac);
  store32(arp + kArpSenderIp, local.ip);
  store_mac(arp + kArpTargetMac, {});
  store32(arp + kArpTargetIp, ip);
}

}  // namespace gradlane
