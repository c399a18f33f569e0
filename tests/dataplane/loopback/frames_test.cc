// frames_test.cc - packets that `gradlane loopback` makes: their contents, and packets that mode codec accepts or
// refuses
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "collectives/crc32c.h"
#include "collectives/wire.h"
#include "dataplane/frame/frame.h"
#include "dataplane/loopback/frames.h"

namespace gradlane::test::frames_test {
namespace {

using Bytes = std::vector<uint8_t>;

const LocalAddress kNode{{0x02, 0x67, 0x6c, 0, 0, 1}, 0xc0000201, 18400, 1};
const Classifier kDefaults(0x28, 0x20, 0xc0);

std::vector<float> some_floats() {
  std::vector<float> floats(kLoopbackFloats);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = std::sin(static_cast<float>(i)) * 0.01F;
  return floats;
}

struct Maker {
  explicit Maker(const char* codec, size_t frame_bytes = 1514) {
    config.codec = find_codec(codec);
    config.frame_bytes = frame_bytes;
    config.data = data;
  }
  [[nodiscard]] Bytes frame(size_t number) const {
    Bytes bytes(config.frame_bytes, 0xee);
    write_loopback_frame(bytes, config, number);
    return bytes;
  }
  // Returns the gradlane packet in frame `number`.
  [[nodiscard]] Bytes packet(size_t number) const {
    const Bytes bytes = frame(number);
    const ParsedFrame parsed = parse_frame(bytes, kNode, kDefaults);
    return {bytes.begin() + kFrameBytes, bytes.begin() + static_cast<ptrdiff_t>(kFrameBytes + parsed.bytes)};
  }
  // Returns whether mode codec accepts the packet. Adds the packet's floats to `floats`.
  bool recode(Bytes& packet) {
    std::vector<float> scratch(kMaxRunFloats);
    return recode_packet(packet, config.codec, scratch, floats);
  }

  std::vector<float> data = some_floats();
  LoopbackConfig config;
  uint64_t floats = 0;
};

TEST(LoopbackFrames, ClassesInTurn) {
  for (const size_t bytes : {kMinLoopbackFrame, size_t{297}, kMinLoopbackPacket, size_t{1514}, kMaxLoopbackFrame}) {
    const Maker maker("fixed:10", bytes);
    for (size_t number = 0; number < 40; ++number) {
      const ParsedFrame parsed = parse_frame(maker.frame(number), kNode, kDefaults);
      EXPECT_EQ(static_cast<size_t>(parsed.traffic), number % kTrafficClasses) << bytes;
      const bool host = parsed.traffic == TrafficClass::kHost;
      EXPECT_EQ(parsed.verdict, host ? FrameVerdict::kHost : FrameVerdict::kGradlane) << bytes;
    }
  }
}

TEST(LoopbackFrames, PacketsAreGenuine) {
  const Maker maker("inceptionn:10");
  for (size_t number = 0; number < 40; ++number) {
    if (number % kTrafficClasses == static_cast<size_t>(TrafficClass::kHost)) continue;
    const Bytes packet = maker.packet(number);
    const auto link = load<LinkHeader>(packet.data());
    const uint32_t state = crc32c(kCrcStart, packet.data() + sizeof(link), packet.size() - sizeof(link));
    EXPECT_EQ(link.crc, ~crc32c(state, packet.data(), kCrcOffset)) << number;
    EXPECT_EQ(link.magic, kMagic);
  }
}

TEST(LoopbackFrames, RecodingChangesNothing) {
  for (const char* codec : {"raw", "bf16", "fp16", "inceptionn:10,truncate", "fixed:7", "fixed:10"}) {
    Maker maker(codec, kMaxLoopbackFrame);
    for (size_t number = 0; number < 80; number += kTrafficClasses) {
      const Bytes before = maker.packet(number);
      const auto run = load<RunHeader>(before.data() + sizeof(LinkHeader));
      EXPECT_GT(run.count, 2000U) << codec;
      Bytes packet = before;
      maker.floats = 0;
      EXPECT_TRUE(maker.recode(packet)) << codec;
      EXPECT_EQ(packet, before) << codec;
      EXPECT_EQ(maker.floats, run.count) << codec;
    }
  }
}

TEST(LoopbackFrames, OtherPacketsStayAsTheyAre) {
  Maker maker("fixed:10");
  const Bytes before = maker.packet(static_cast<size_t>(TrafficClass::kControl));
  Bytes packet = before;
  EXPECT_TRUE(maker.recode(packet));
  EXPECT_EQ(packet, before);
  EXPECT_EQ(maker.floats, 0U);
}

TEST(LoopbackFrames, WhatTheCodecHasNotMadeIsRefused) {
  Maker maker("fixed:10");
  const Bytes good = maker.packet(0);
  Bytes other = Maker("fixed:7").packet(0);
  EXPECT_FALSE(maker.recode(other)) << "another codec";
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    Bytes cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes));
    // A link header alone is a data packet without runs.
    EXPECT_EQ(maker.recode(cut), bytes == sizeof(LinkHeader)) << bytes;
  }
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_FALSE(maker.recode(longer)) << "a byte too many";
  Bytes tags = good;
  for (size_t i = 0; i < 8; ++i) tags[sizeof(LinkHeader) + sizeof(RunHeader) + i] = 0xff;
  EXPECT_FALSE(maker.recode(tags)) << "tags that ask for more than there is";
}

}  // namespace
}  // namespace gradlane::test::frames_test
