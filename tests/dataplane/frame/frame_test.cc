// frame_test.cc - frames in, verdicts out: frames for this node, and the reason for each other frame
#include "dataplane/frame/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test::frame_test {
namespace {

// Parses a copy in a heap block of its exact size, so that the address sanitizer notices any read beyond it.
ParsedFrame parse(const Bytes& frame, const LocalAddress& local = kLocal) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[frame.size()]);
  if (!frame.empty()) std::memcpy(exact.get(), frame.data(), frame.size());
  return parse_frame({exact.get(), frame.size()}, local, kClassifier);
}

std::string verdict(const Bytes& frame, const LocalAddress& local = kLocal) {
  return counter_name(parse(frame, local).verdict);
}

// A frame with one change. If `seal` is set, the checksums of the IP header and of ICMP are corrected after the change.
struct Row {
  const char* what;
  Bytes frame;
  const char* want;
  std::function<void(Bytes&)> change = [](Bytes&) {};
  bool seal = true;
};

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    Bytes frame = row.frame;
    row.change(frame);
    if (row.seal && frame.size() >= kL4 && get16(frame, 12) == 0x0800) {
      seal_ip(frame);
      if (frame[kIp + 9] == 1) seal_icmp(frame);
    }
    EXPECT_EQ(verdict(frame), row.want) << row.what;
  }
}

std::function<void(Bytes&)> set8(size_t at, uint8_t value) {
  return [=](Bytes& frame) { frame[at] = value; };
}
std::function<void(Bytes&)> set16(size_t at, unsigned value) {
  return [=](Bytes& frame) { put16(frame, at, value); };
}
std::function<void(Bytes&)> set32(size_t at, uint32_t value) {
  return [=](Bytes& frame) { put32(frame, at, value); };
}

const Bytes kUdpFrame = udp(kTosCompressed, kPort, 100);
const Bytes kPingFrame = ping(56);
const Bytes kArpFrame = arp(kEverybody, 1, kTheirIp, kOurIp);

TEST(Frame, Ethernet) {
  check({
      {"ours", kUdpFrame, "gradlane"},
      {"another unicast MAC", kUdpFrame, "not_for_us", set8(5, 0x0c)},
      {"another first byte of the MAC", kUdpFrame, "not_for_us", set8(0, 0x06)},
      {"IPv4 to the broadcast MAC", kUdpFrame, "not_for_us", [](Bytes& frame) { std::memset(frame.data(), 0xff, 6); }},
      {"ping to the broadcast MAC", kPingFrame, "not_for_us", [](Bytes& frame) { std::memset(frame.data(), 0xff, 6); }},
      {"IPv4 to a multicast MAC", kUdpFrame, "not_for_us", set8(0, 0x01)},
      {"IPv6", ethernet(kOurMac, kTheirMac, 0x86dd), "other_ethertype"},
      {"a VLAN tag", ethernet(kOurMac, kTheirMac, 0x8100), "other_ethertype"},
      {"LLDP to a multicast MAC", ethernet({1, 0x80, 0xc2, 0, 0, 0x0e}, kTheirMac, 0x88cc), "other_ethertype"},
      {"an IEEE 802.3 length", ethernet(kOurMac, kTheirMac, 46), "other_ethertype"},
  });
}

TEST(Frame, Ipv4Header) {
  check({
      {"version 6", kUdpFrame, "bad_ip_header", set8(kIp, 0x65)},
      {"header of 16 bytes", kUdpFrame, "bad_ip_header", set8(kIp, 0x44), false},
      {"header of 0 bytes", kUdpFrame, "bad_ip_header", set8(kIp, 0x40), false},
      {"packet shorter than its header", kUdpFrame, "bad_ip_header", set16(kIp + 2, 19)},
      {"packet longer than the frame", kUdpFrame, "runt", set16(kIp + 2, 129)},
      {"packet as long as it gets", kUdpFrame, "runt", set16(kIp + 2, 0xffff)},
      {"header longer than the packet", udp(kTosRaw, kPort, 0), "bad_ip_header", set8(kIp, 0x4f), false},
      {"wrong checksum", kUdpFrame, "bad_ip_header", [](Bytes& frame) { frame[kIp + 10] ^= 1; }, false},
      {"checksum of 0", kUdpFrame, "bad_ip_header", set16(kIp + 10, 0), false},
      {"another host's address", kUdpFrame, "not_for_us", set32(kIp + 16, kOurIp + 1)},
      {"the broadcast address", kUdpFrame, "not_for_us", set32(kIp + 16, 0xffffffff)},
      {"a multicast address", kUdpFrame, "not_for_us", set32(kIp + 16, 0xe0000001)},
      {"may be fragmented, is not", kUdpFrame, "gradlane", set16(kIp + 6, 0)},
      {"first fragment", kUdpFrame, "fragment", set16(kIp + 6, 0x2000)},
      {"later fragment", kUdpFrame, "fragment", set16(kIp + 6, 0x2001)},
      {"last fragment", kUdpFrame, "fragment", set16(kIp + 6, 0x1000)},
      {"fragment of a ping", kPingFrame, "fragment", set16(kIp + 6, 0x0001)},
      {"TTL of 0", kUdpFrame, "gradlane", set8(kIp + 8, 0)},
      {"TCP", kUdpFrame, "host", set8(kIp + 9, 6)},
      {"options", udp(kTosRaw, kPort, 100, 4), "ip_options"},
      {"as many options as there can be", udp(kTosRaw, kPort, 100, 40), "ip_options"},
      {"wrong checksum with options", udp(kTosRaw, kPort, 100, 8), "bad_ip_header", set8(kIp + 27, 7), false},
      {"options, host's port", udp(kTosRaw, 53, 100, 4), "host"},
  });
}

TEST(Frame, Udp) {
  check({
      {"first port", kUdpFrame, "gradlane", set16(kL4 + 2, kPort)},
      {"last port", kUdpFrame, "gradlane", set16(kL4 + 2, kPort + kPorts - 1)},
      {"port before", kUdpFrame, "host", set16(kL4 + 2, kPort - 1)},
      {"port behind", kUdpFrame, "host", set16(kL4 + 2, kPort + kPorts)},
      {"port 0", kUdpFrame, "host", set16(kL4 + 2, 0)},
      {"port 65535", kUdpFrame, "host", set16(kL4 + 2, 65535)},
      {"payload of 0 bytes", udp(kTosControl, kPort, 0), "gradlane"},
      {"length of 7", kUdpFrame, "bad_udp", set16(kL4 + 4, 7)},
      {"length of 0", kUdpFrame, "bad_udp", set16(kL4 + 4, 0)},
      {"longer than the packet", kUdpFrame, "bad_udp", set16(kL4 + 4, 109)},
      {"as long as it gets", kUdpFrame, "bad_udp", set16(kL4 + 4, 0xffff)},
      {"shorter than the packet", kUdpFrame, "gradlane", set16(kL4 + 4, 100)},
      {"packet ends in the header", kUdpFrame, "bad_udp", set16(kIp + 2, 27)},
      {"with a checksum", kUdpFrame, "gradlane", set16(kL4 + 6, 0xbeef)},
  });
  EXPECT_EQ(parse(udp(kTosRaw, kPort, 1200)).bytes, 1200U);
  Bytes shorter = kUdpFrame;
  put16(shorter, kL4 + 4, 60);
  EXPECT_EQ(parse(shorter).bytes, 52U);
}

TEST(Frame, PortsUpToTheLast) {
  const LocalAddress last{kOurMac, kOurIp, 65534, 2};
  EXPECT_EQ(verdict(udp(kTosRaw, 65535, 1), last), "gradlane");
  EXPECT_EQ(verdict(udp(kTosRaw, 0, 1), last), "host");
  const LocalAddress none{kOurMac, kOurIp, kPort, 0};
  EXPECT_EQ(verdict(udp(kTosRaw, kPort, 1), none), "host");
}

TEST(Frame, Ping) {
  check({
      {"ours", kPingFrame, "echo"},
      {"of a gradlane class", ping(56, 0, kTosCompressed), "echo"},
      {"no payload", ping(0), "echo"},
      {"wrong checksum", kPingFrame, "bad_checksum", [](Bytes& frame) { frame.back() ^= 1; }, false},
      {"wrong last byte of odd many", ping(33), "bad_checksum", [](Bytes& frame) { frame.back() ^= 1; }, false},
      {"packet ends in the ICMP header", kPingFrame, "runt", set16(kIp + 2, 27)},
      {"a reply", kPingFrame, "host", set8(kL4, 0)},
      {"unreachable", kPingFrame, "host", set8(kL4, 3)},
      {"code 1", kPingFrame, "host", set8(kL4 + 1, 1)},
      {"another host's", kPingFrame, "not_for_us", set32(kIp + 16, kTheirIp)},
      {"with options", ping(56, 8), "ip_options"},
      {"from the broadcast address", kPingFrame, "host", set32(kIp + 12, 0xffffffff)},
      {"from a multicast address", kPingFrame, "host", set32(kIp + 12, 0xe0000001)},
      {"from no address", kPingFrame, "host", set32(kIp + 12, 0)},
      {"from a multicast MAC", kPingFrame, "host", set8(6, 0x03)},
  });
}

// Returns a frame of this node as a switch with a loop would send it back.
Bytes from_us(Bytes frame) {
  std::ranges::copy(kOurMac, frame.begin() + 6);
  std::ranges::copy(kOurMac, frame.begin() + 22);
  return frame;
}

TEST(Frame, Arp) {
  check({
      {"request", kArpFrame, "arp"},
      {"request to our MAC", arp(kOurMac, 1, kTheirIp, kOurIp), "arp"},
      {"reply", arp(kOurMac, 2, kTheirIp, kOurIp), "arp"},
      {"probe for our address", arp(kEverybody, 1, 0, kOurIp), "arp"},
      {"gratuitous, of their address", arp(kEverybody, 1, kTheirIp, kTheirIp), "not_for_us"},
      {"gratuitous reply, of their address", arp(kEverybody, 2, kTheirIp, kTheirIp), "not_for_us"},
      {"gratuitous, of our address", arp(kEverybody, 1, kOurIp, kOurIp), "rival"},
      {"reply that our address is theirs", arp(kOurMac, 2, kOurIp, kOurIp), "rival"},
      {"request for a third address, from ours", arp(kEverybody, 1, kOurIp, kOurIp + 1), "rival"},
      {"request of ours that comes back", from_us(arp(kEverybody, 1, kOurIp, kTheirIp)), "not_for_us"},
      {"probe of ours that comes back", from_us(arp(kEverybody, 1, 0, kOurIp)), "not_for_us"},
      {"request of a host with our MAC, as of links in memory", from_us(arp(kEverybody, 1, kTheirIp, kOurIp)), "arp"},
      {"announcement of ours that comes back", from_us(arp(kEverybody, 1, kOurIp, kOurIp)), "not_for_us"},
      {"for another address", arp(kEverybody, 1, kTheirIp, kOurIp + 1), "not_for_us"},
      {"to another MAC", kArpFrame, "not_for_us", [](Bytes& frame) { std::memset(frame.data(), 2, 6); }},
      {"to a multicast MAC", kArpFrame, "not_for_us", [](Bytes& frame) { std::memset(frame.data(), 1, 6); }},
      {"hardware other than Ethernet", kArpFrame, "bad_arp", set16(14, 6)},
      {"protocol other than IPv4", kArpFrame, "bad_arp", set16(16, 0x86dd)},
      {"hardware addresses of 8 bytes", kArpFrame, "bad_arp", set8(18, 8)},
      {"protocol addresses of 16 bytes", kArpFrame, "bad_arp", set8(19, 16)},
      {"operation 0", kArpFrame, "bad_arp", set16(20, 0)},
      {"RARP", kArpFrame, "bad_arp", set16(20, 3)},
      {"sender with a broadcast MAC", kArpFrame, "bad_arp", [](Bytes& frame) { std::memset(&frame[22], 0xff, 6); }},
  });
  const ParsedFrame parsed = parse(arp(kOurMac, 2, kTheirIp, kOurIp));
  EXPECT_EQ(parsed.source_ip, kTheirIp);
  EXPECT_EQ(parsed.source_mac, kTheirMac);
}

TEST(Frame, SourceAndDestination) {
  const ParsedFrame parsed = parse(udp(kTosRaw, kPort + 3, 64));
  EXPECT_EQ(parsed.verdict, FrameVerdict::kGradlane);
  EXPECT_EQ(parsed.source_ip, kTheirIp);
  EXPECT_EQ(parsed.source_port, 40000);
  EXPECT_EQ(parsed.destination_port, kPort + 3);
}

// ---- All values of the ToS byte: DSCP alone decides the class.
TEST(Frame, EveryTos) {
  for (unsigned tos = 0; tos < 256; ++tos) {
    TrafficClass want = TrafficClass::kHost;
    if ((tos & 0xfc) == kTosCompressed) want = TrafficClass::kCompressed;
    if ((tos & 0xfc) == kTosRaw) want = TrafficClass::kRaw;
    if ((tos & 0xfc) == kTosControl) want = TrafficClass::kControl;
    const ParsedFrame parsed = parse(udp(static_cast<uint8_t>(tos), kPort, 10));
    EXPECT_EQ(parsed.traffic, want) << tos;
    EXPECT_EQ(parsed.verdict, want == TrafficClass::kHost ? FrameVerdict::kHost : FrameVerdict::kGradlane) << tos;
  }
}

TEST(Frame, EcnBitsOfTheConfigurationDoNotCount) {
  const Classifier classifier(kTosCompressed | 3, kTosRaw | 1, kTosControl | 2);
  for (unsigned tos = 0; tos < 256; ++tos) {
    const auto value = static_cast<uint8_t>(tos);
    EXPECT_EQ(classifier.classify(value), kClassifier.classify(value)) << tos;
  }
  EXPECT_EQ(classifier.tos_of(TrafficClass::kCompressed), kTosCompressed);
  EXPECT_EQ(classifier.tos_of(TrafficClass::kRaw), kTosRaw);
  EXPECT_EQ(classifier.tos_of(TrafficClass::kControl), kTosControl);
  EXPECT_EQ(classifier.tos_of(TrafficClass::kHost), 0);
}

// ---- A frame that is cut anywhere is refused. Padding changes nothing.
TEST(Frame, EveryLength) {
  for (const Bytes& whole : {kUdpFrame, kPingFrame, kArpFrame, udp(kTosRaw, kPort, 20, 40)}) {
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      EXPECT_EQ(verdict(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes))), "runt") << bytes;
    }
    const ParsedFrame want = parse(whole);
    Bytes padded = whole;
    for (size_t more = 1; more <= 64; ++more) {
      padded.push_back(0xee);
      const ParsedFrame got = parse(padded);
      EXPECT_EQ(got.verdict, want.verdict) << more;
      EXPECT_EQ(got.bytes, want.bytes) << more;
    }
  }
}

// ---- Any flipped bit of an IP header is found.
TEST(Frame, EveryBitOfTheIpHeader) {
  for (size_t options : {size_t{0}, size_t{12}}) {
    const Bytes whole = udp(kTosCompressed, kPort, 64, options);
    for (size_t bit = 0; bit < 8 * (20 + options); ++bit) {
      Bytes frame = whole;
      frame[kIp + bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const std::string got = verdict(frame);
      EXPECT_TRUE(got == "bad_ip_header" || got == "runt") << bit << " " << got;
    }
  }
}

TEST(Frame, NamesAreDistinct) {
  std::set<std::string> names, helps;
  for (size_t i = 0; i < static_cast<size_t>(FrameVerdict::kCount); ++i) {
    names.insert(counter_name(static_cast<FrameVerdict>(i)));
    helps.insert(counter_help(static_cast<FrameVerdict>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(FrameVerdict::kCount));
  EXPECT_EQ(helps.size(), names.size());
  EXPECT_STREQ(counter_name(FrameVerdict::kBadArp), "bad_arp");
  EXPECT_STREQ(counter_name(TrafficClass::kCompressed), "compressed");
  EXPECT_STREQ(counter_name(TrafficClass::kHost), "host");
}

}  // namespace
}  // namespace gradlane::test::frame_test
