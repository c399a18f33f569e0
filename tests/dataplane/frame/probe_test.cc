// probe_test.cc - bytes of probes: written, accepted and refused ones
#include "dataplane/frame/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "collectives/crc32c.h"
#include "config/loader.h"
#include "dataplane/frame/frame.h"
#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test::probe_test {
namespace {

ProbeIdentity identity() {
  ProbeIdentity us{};
  us.rank_table = 0x0123456789abcdef;
  us.nodes = 4;
  us.node = 2;
  us.mtu = 1500;
  us.codec = 4;
  us.param = 10;
  us.protocol = 2;
  return us;
}

Bytes request(size_t bytes = 64) {
  ProbeHeader header{};
  header.kind = ProbeKind::kRequest;
  header.id = 0x11223344;
  header.nonce = 0x5566778899aabbcc;
  header.sender = identity();
  header.tos = 0x28;
  Bytes payload(bytes, 0xee);
  write_probe(payload, header);
  return payload;
}

// Parses a copy in a heap block of its exact size, so that the address sanitizer notices any read beyond it.
std::optional<ProbeHeader> parse(const Bytes& bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  return parse_probe({exact.get(), bytes.size()});
}

// The bytes are those of docs/wire-format.md. Other code computed their CRC.
TEST(Probe, BytesOfTheDocument) {
  const Bytes expected = {0x47, 0x50, 0x01, 0x01, 0x44, 0x33, 0x22, 0x11, 0xcc, 0xbb, 0xaa, 0x99,
                          0x88, 0x77, 0x66, 0x55, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01,
                          0x04, 0x00, 0x02, 0x00, 0xdc, 0x05, 0x04, 0x0a, 0x02, 0x00, 0x00, 0x00,
                          0x28, 0x00, 0x00, 0x00, 0x20, 0x0b, 0xe8, 0x54, 0x00, 0x00};
  const Bytes payload = request(46);
  EXPECT_EQ(payload, expected);
}

TEST(Probe, WhatIsWrittenIsRead) {
  for (const size_t bytes : {size_t{44}, size_t{45}, size_t{64}, size_t{1472}, size_t{8972}}) {
    const auto header = parse(request(bytes));
    ASSERT_TRUE(header) << bytes;
    EXPECT_EQ(header->kind, ProbeKind::kRequest);
    EXPECT_EQ(uint32_t{header->id}, 0x11223344U);
    EXPECT_EQ(uint64_t{header->nonce}, 0x5566778899aabbccU);
    EXPECT_EQ(header->tos, 0x28);
    const ProbeIdentity us = identity();
    EXPECT_EQ(std::memcmp(&header->sender, &us, sizeof(us)), 0);
  }
}

TEST(Probe, EveryBitCounts) {
  const Bytes good = request(60);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] = static_cast<uint8_t>(bad[bit / 8] ^ 1U << bit % 8);
    EXPECT_FALSE(parse(bad)) << bit;
  }
}

TEST(Probe, OtherLengths) {
  const Bytes good = request(60);
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(parse(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)))) << bytes;
  }
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_FALSE(parse(longer));
  EXPECT_FALSE(parse(request(kMaxMtu + 1)));
}

TEST(Probe, UnknownVersionsAndKinds) {
  const auto resealed = [](size_t at, uint8_t value) {
    Bytes bytes = request(44);
    bytes[at] = value;
    store(&bytes[40], ~crc32c(kCrcStart, bytes.data(), 40));
    return parse(bytes).has_value();
  };
  EXPECT_TRUE(resealed(36, 0xc0));
  EXPECT_TRUE(resealed(3, 2));
  EXPECT_FALSE(resealed(2, 2));
  EXPECT_FALSE(resealed(3, 0));
  EXPECT_FALSE(resealed(3, 3));
  EXPECT_FALSE(resealed(0, 'X'));
}

TEST(Probe, ReplySaysHowTheRequestArrived) {
  const auto asked = parse(request());
  ASSERT_TRUE(asked);
  ProbeIdentity them = identity();
  them.node = 3;
  const ProbeHeader reply = reply_to(*asked, them, 0x04, 1500);
  EXPECT_EQ(reply.kind, ProbeKind::kReply);
  EXPECT_EQ(uint32_t{reply.id}, 0x11223344U);
  EXPECT_EQ(uint64_t{reply.nonce}, 0x5566778899aabbccU);
  EXPECT_EQ(uint16_t{reply.sender.node}, 3);
  EXPECT_EQ(reply.tos, 0x28);
  EXPECT_EQ(reply.arrived_tos, 0x04);
  EXPECT_EQ(uint16_t{reply.arrived}, 1500);
}

// ---- In a frame

Bytes frame_with(const Bytes& payload, uint8_t tos, uint16_t port = kPort) {
  Bytes frame = udp(tos, port, payload.size());
  std::ranges::copy(payload, frame.begin() + kL4 + 8);
  return frame;
}

TEST(Probe, PassesWithAnyTos) {
  for (unsigned tos = 0; tos < 256; ++tos) {
    const auto parsed = parse_frame(frame_with(request(), static_cast<uint8_t>(tos)), kLocal, kClassifier);
    ASSERT_EQ(parsed.verdict, FrameVerdict::kProbe) << tos;
    EXPECT_EQ(parsed.tos, tos);
    EXPECT_EQ(parsed.bytes, 64U);
    EXPECT_EQ(parsed.source_ip, kTheirIp);
  }
}

TEST(Probe, NothingElsePassesWithoutItsTos) {
  const Bytes exchange = {0x47, 0x4c, 1, 1};
  const auto verdict = [](const Bytes& frame) { return parse_frame(frame, kLocal, kClassifier).verdict; };
  EXPECT_EQ(verdict(frame_with(exchange, 0)), FrameVerdict::kHost);
  EXPECT_EQ(verdict(frame_with(exchange, kTosRaw)), FrameVerdict::kGradlane);
  EXPECT_EQ(verdict(frame_with({0x47}, 0)), FrameVerdict::kHost);
  EXPECT_EQ(verdict(udp(0, kPort, 0)), FrameVerdict::kHost);
  EXPECT_EQ(verdict(udp(kTosRaw, kPort, 100)), FrameVerdict::kGradlane);
  EXPECT_EQ(verdict(frame_with(request(), 0, kPort - 1)), FrameVerdict::kHost);
  EXPECT_EQ(verdict(frame_with(request(), 0, kPort + kPorts)), FrameVerdict::kHost);
}

TEST(Probe, IdentityOfAConfiguration) {
  const NodeConfig config = parse_config(
      "rank: 1\nnodes: [{rank: 0, ip: 10.77.0.1}, {rank: 1, ip: 10.77.0.2}]\nmtu: 9000\ncodec: 'inceptionn:9'\n"
      "ports: [{device: 'net_memif0,bsize=9216'}]\n",
      "test");
  const ProbeIdentity us = probe_identity(config);
  EXPECT_EQ(uint64_t{us.rank_table}, rank_table_digest(config));
  EXPECT_EQ(uint16_t{us.nodes}, 2);
  EXPECT_EQ(uint16_t{us.node}, 1);
  EXPECT_EQ(uint16_t{us.mtu}, 9000);
  EXPECT_EQ(us.codec, static_cast<uint8_t>(config.codec.id()));
  EXPECT_EQ(us.param, 9);
  EXPECT_EQ(us.protocol, kProtocolVersion);
  EXPECT_EQ(std::to_array(us.arguments), (std::array<uint8_t, 3>{}));
}

// Codecs that differ in more than the parameter byte have different arguments.
TEST(Probe, IdentityOfACodecWithArguments) {
  const auto arguments_of = [](const char* codec) {
    NodeConfig config;
    config.codec = find_codec(codec);
    return std::to_array(probe_identity(config).arguments);
  };
  EXPECT_EQ(arguments_of("fixed:10"), arguments_of("raw"));
  EXPECT_NE(arguments_of("int8:512"), arguments_of("raw"));
  EXPECT_NE(arguments_of("int8:512"), arguments_of("int8:256"));
}

}  // namespace
}  // namespace gradlane::test::probe_test
