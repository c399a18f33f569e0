// frame_answer_test.cc - requests in, answers out, byte by byte; and the headers of sent frames
#include <gtest/gtest.h>

#include <cstring>

#include "dataplane/frame/frame.h"
#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test::frame_answer_test {
namespace {

// Address of the host that asks, which parses the answer.
const LocalAddress kAsker{kTheirMac, kTheirIp, kPort, kPorts};

// Returns this node's answer to a frame; empty if there is none.
Bytes answer(Bytes frame) {
  const ParsedFrame parsed = parse_frame(frame, kLocal, kClassifier);
  const size_t bytes = answer_frame(frame, parsed, kLocal);
  EXPECT_LE(bytes, frame.size());
  frame.resize(bytes);
  return frame;
}

TEST(FrameAnswer, PingOfEverySize) {
  for (size_t payload = 0; payload <= 1472; payload += payload < 70 ? 1 : 37) {
    const Bytes request = ping(payload, 0, 0x48);
    Bytes want = request;
    std::memcpy(&want[0], kTheirMac.data(), 6);
    std::memcpy(&want[6], kOurMac.data(), 6);
    want[kIp + 8] = 64;
    put32(want, kIp + 12, kOurIp);
    put32(want, kIp + 16, kTheirIp);
    seal_ip(want);
    want[kL4] = 0;
    seal_icmp(want);
    EXPECT_EQ(answer(request), want) << payload;
    // The host that asked gets a valid echo reply, which it does not answer.
    EXPECT_EQ(parse_frame(want, kAsker, kClassifier).verdict, FrameVerdict::kHost) << payload;

    Bytes padded = request;
    padded.resize(padded.size() + 18, 0xee);
    EXPECT_EQ(answer(padded), want) << payload;
  }
}

// The sum of a reply may be zero. Its checksum is 0xffff then, and not 0.
TEST(FrameAnswer, PingOfZeros) {
  Bytes request = ping(8);
  std::memset(&request[kL4 + 4], 0, 12);
  seal_icmp(request);
  const Bytes reply = answer(request);
  ASSERT_EQ(reply.size(), request.size());
  EXPECT_EQ(get16(reply, kL4 + 2), 0xffffU);
}

TEST(FrameAnswer, PingsOfManySums) {
  for (unsigned value = 0; value < 65536; value += 11) {
    Bytes request = ping(2);
    put16(request, kL4 + 8, value);
    put16(request, kL4 + 6, value * 7 & 0xffff);
    seal_icmp(request);
    const Bytes reply = answer(request);
    ASSERT_EQ(reply.size(), request.size()) << value;
    EXPECT_EQ(get16(reply, kL4 + 2), slow_checksum(reply, kL4, reply.size(), kL4 + 2)) << value;
    EXPECT_EQ(get16(reply, kIp + 10), slow_checksum(reply, kIp, kL4, kIp + 10)) << value;
  }
}

TEST(FrameAnswer, ArpRequest) {
  for (const uint32_t asker_ip : {kTheirIp, uint32_t{0}}) {
    for (const MacAddress& to : {kEverybody, kOurMac}) {
      const Bytes reply = answer(arp(to, 1, asker_ip, kOurIp));
      Bytes want = arp(kTheirMac, 2, kOurIp, asker_ip);
      std::memcpy(&want[6], kOurMac.data(), 6);
      std::memcpy(&want[22], kOurMac.data(), 6);
      std::memcpy(&want[32], kTheirMac.data(), 6);
      EXPECT_EQ(reply, want);
    }
  }
  Bytes padded = arp(kEverybody, 1, kTheirIp, kOurIp);
  padded.resize(60);
  EXPECT_EQ(answer(padded).size(), kArpFrameBytes);
}

TEST(FrameAnswer, AskerLearnsOurMac) {
  const Bytes reply = answer(arp(kEverybody, 1, kTheirIp, kOurIp));
  const ParsedFrame parsed = parse_frame(reply, kAsker, kClassifier);
  EXPECT_EQ(parsed.verdict, FrameVerdict::kArp);
  EXPECT_EQ(parsed.source_ip, kOurIp);
  EXPECT_EQ(parsed.source_mac, kOurMac);
}

TEST(FrameAnswer, NothingElseIsAnswered) {
  EXPECT_TRUE(answer(arp(kOurMac, 2, kTheirIp, kOurIp)).empty());
  EXPECT_TRUE(answer(arp(kEverybody, 1, kTheirIp, kTheirIp)).empty());
  EXPECT_TRUE(answer(udp(kTosRaw, kPort, 100)).empty());
  EXPECT_TRUE(answer(udp(0, 53, 100)).empty());
  EXPECT_TRUE(answer(Bytes(13)).empty());
  EXPECT_TRUE(answer({}).empty());
}

TEST(FrameSend, ArpRequest) {
  Bytes frame(kArpFrameBytes, 0xee);
  write_arp_request(frame.data(), kAsker, kOurIp);
  EXPECT_EQ(frame, arp(kEverybody, 1, kTheirIp, kOurIp));
}

TEST(FrameSend, HeadersOfEveryLength) {
  const Flow flow{kTheirMac, kOurMac, kTheirIp, kOurIp, 40000, kPort};
  for (size_t payload = 0; payload <= 8972; payload += payload < 100 ? 1 : 59) {
    for (const uint8_t tos : {kTosCompressed, kTosRaw, kTosControl}) {
      Bytes want = udp(tos, kPort, payload);
      put16(want, kIp + 4, 0);
      want[kIp + 8] = 64;
      seal_ip(want);
      Bytes frame(want.size(), 0xee);
      std::copy(want.begin() + kFrameBytes, want.end(), frame.begin() + kFrameBytes);
      write_headers(frame.data(), flow, tos, payload);
      ASSERT_EQ(frame, want) << payload;
      const ParsedFrame parsed = parse_frame(frame, kLocal, kClassifier);
      ASSERT_EQ(parsed.verdict, FrameVerdict::kGradlane);
      ASSERT_EQ(parsed.bytes, payload);
    }
  }
}

// The sums of these addresses have carries of all kinds.
TEST(FrameSend, ChecksumsOfManyAddresses) {
  Flow flow{kTheirMac, kOurMac, 0, 0, 1, 2};
  Bytes frame(kFrameBytes + 1);
  uint32_t bits = 1;
  for (unsigned i = 0; i < 20000; ++i) {
    bits = bits * 1664525 + 1013904223;
    flow.source_ip = i % 3 == 0 ? ~bits >> i % 32 : bits;
    flow.destination_ip = i % 5 == 0 ? 0xffffffff - i : bits * 77;
    write_headers(frame.data(), flow, static_cast<uint8_t>(i), 1);
    ASSERT_EQ(get16(frame, kIp + 10), slow_checksum(frame, kIp, kL4, kIp + 10)) << i;
  }
}

// Returns the checksum as RFC 768 defines it. The pseudo-header is put in front, and all of it is summed up.
unsigned slow_udp_checksum(const Bytes& frame) {
  const unsigned length = get16(frame, kL4 + 4);
  Bytes bytes(12);
  put32(bytes, 0, get32(frame, kIp + 12));
  put32(bytes, 4, get32(frame, kIp + 16));
  bytes[9] = 17;
  put16(bytes, 10, length);
  bytes.insert(bytes.end(), frame.begin() + kL4, frame.begin() + static_cast<ptrdiff_t>(kL4 + length));
  const unsigned checksum = slow_checksum(bytes, 0, bytes.size(), 12 + 6);
  return checksum == 0 ? 0xffff : checksum;
}

TEST(FrameSend, UdpChecksumsOfEveryLength) {
  uint32_t bits = 1;
  for (size_t payload = 0; payload <= 8972; payload += payload < 300 ? 1 : 59) {
    Bytes frame = udp(kTosRaw, kPort, payload);
    for (size_t at = kFrameBytes; at < frame.size(); ++at) {
      bits = bits * 1664525 + 1013904223;
      frame[at] = static_cast<uint8_t>(payload % 3 == 0 ? 0xff : bits >> 24);
    }
    const Bytes before = frame;
    put16(frame, kL4 + 6, 0xabcd);  // any old value
    seal_udp(frame.data(), payload);
    ASSERT_EQ(get16(frame, kL4 + 6), slow_udp_checksum(before)) << payload;
    EXPECT_TRUE(has_udp_checksum(frame.data()));
    frame[kL4 + 6] = frame[kL4 + 7] = 0;
    EXPECT_FALSE(has_udp_checksum(frame.data()));
    ASSERT_EQ(frame, before) << payload;  // nothing else has changed
  }
}

// A computed 0 is sent as 0xffff, because 0 says that there is no checksum.
TEST(FrameSend, UdpChecksumIsNeverZero) {
  Bytes frame = udp(kTosRaw, kPort, 2);
  unsigned ones = 0;
  for (unsigned word = 0; word <= 0xffff; ++word) {
    put16(frame, kFrameBytes, word);
    seal_udp(frame.data(), 2);
    ASSERT_NE(get16(frame, kL4 + 6), 0u) << word;
    ones += get16(frame, kL4 + 6) == 0xffff ? 1 : 0;
  }
  EXPECT_NE(ones, 0u);
}

// A device gets the sum of the pseudo-header, and continues from there.
TEST(FrameSend, UdpChecksumBegunForDevices) {
  Bytes frame = udp(kTosRaw, kPort, 333);
  begin_udp_checksum(frame.data());
  const unsigned devices = slow_checksum(frame, kL4, frame.size(), frame.size());
  EXPECT_EQ(devices, slow_udp_checksum(udp(kTosRaw, kPort, 333)));
}

}  // namespace
}  // namespace gradlane::test::frame_answer_test
