// repacking_test.cc - compressed packets that share frames: order, holding time, many flows, garbage
#include <gtest/gtest.h>

#include <random>

#include "dataplane/accelerator/engine/accelerator.h"
#include "tests/dataplane/accelerator/engine/two_ends.h"
#include "tests/thorough.h"

namespace gradlane::test::repacking_test {
namespace {

using accel::Counter;

constexpr Nanos kNow = End::kStart;

class RepackingTest : public ::testing::Test {
 protected:
  static constexpr Nanos kHold = 20 * kMicrosecond;
  RepackingTest() { both_.meet(); }
  static Bytes expected(const Bytes& frame) { return lossy_frame(find_codec(kDefaultLossyCodec), frame, 0); }
  ~RepackingTest() override { EXPECT_EQ(here_.held() + there_.held(), 0U); }
  TwoEnds both_{with_hold(kHold)};
  End& here_ = both_.near;
  End& there_ = both_.far;
};

TEST_F(RepackingTest, PacketsOfAFlowShareFramesInOrder) {
  Connection connection;
  here_.from_host(connection.syn());
  std::vector<Bytes> sent;
  for (uint64_t i = 0; i < 50; ++i) {
    sent.push_back(connection.data(payload(Data::kGradients, 1448, i)));
    here_.from_host(sent.back());
  }
  here_.poll(kNow + kHold);
  EXPECT_LT(here_.wire.size(), 15U);
  for (const Bytes& frame : here_.wire) EXPECT_LE(frame.size(), 1514U);
  both_.deliver();
  ASSERT_EQ(there_.host.size(), 51U);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(there_.host[i + 1], expected(sent[i])) << i;
}

TEST_F(RepackingTest, NoPacketWaitsLongerThanItMay) {
  Connection connection;
  here_.from_host(connection.syn());
  here_.wire.clear();
  EXPECT_EQ(here_.engine().deadline(), kNever);
  here_.from_host(connection.data(payload(Data::kGradients, 1448, 1)), kNow);
  here_.from_host(connection.data(payload(Data::kGradients, 1448, 2)), kNow + kHold / 2);
  EXPECT_EQ(here_.engine().deadline(), kNow + kHold);
  here_.poll(kNow + kHold - 1);
  EXPECT_TRUE(here_.wire.empty());
  here_.poll(kNow + kHold);
  EXPECT_EQ(here_.wire.size(), 1U);
  EXPECT_EQ(here_.engine().deadline(), kNever);
  both_.deliver();
}

TEST_F(RepackingTest, WhatFollowsInAFlowDoesNotOvertake) {
  Connection connection;
  here_.from_host(connection.syn());
  const Bytes data = connection.data(payload(Data::kGradients, 1448, 1));
  const Bytes small = connection.data(Bytes(7, 1));
  const Bytes fin = connection.fin();
  here_.from_host(data);
  here_.from_host(small);
  here_.from_host(fin);
  both_.deliver();
  ASSERT_EQ(there_.host.size(), 4U);
  EXPECT_EQ(there_.host[1], expected(data));
  EXPECT_EQ(there_.host[2], small);
  EXPECT_EQ(there_.host[3], fin);
}

TEST_F(RepackingTest, ManyFlowsAtOnceKeepTheirOrder) {
  constexpr size_t kFlows = accel::OpenBundles::kSlots + 5;
  std::vector<std::vector<Bytes>> sent(kFlows);
  for (uint64_t round = 0; round < 8; ++round) {
    for (size_t flow = 0; flow < kFlows; ++flow) {
      Packet packet = udp(payload(Data::kGradients, 1000, round * 100 + flow));
      packet.source_port = static_cast<uint16_t>(1000 + flow);
      packet.id = static_cast<uint16_t>(round);
      sent[flow].push_back(frame_of(packet));
      here_.from_host(sent[flow].back());
    }
  }
  here_.engine().flush();
  both_.deliver();
  std::vector<std::vector<Bytes>> got(kFlows);
  for (const Bytes& frame : there_.host) got.at(get16(frame, 34) - 1000).push_back(frame);
  for (size_t flow = 0; flow < kFlows; ++flow) {
    ASSERT_EQ(got[flow].size(), 8U);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(got[flow][i], expected(sent[flow][i]));
  }
}

// Arbitrary frames arrive from both sides, again and again. No buffer may get lost. The fuzzer tests more of them.
TEST_F(RepackingTest, SurvivesGarbage) {
  std::mt19937_64 random(1);
  Connection connection;
  std::vector<Bytes> seeds = {connection.syn(), connection.data(payload(Data::kGradients, 1448, 1)),
                              frame_of(udp(payload(Data::kGradients, 1000, 1)))};
  here_.from_host(seeds[2]);
  here_.engine().flush();
  seeds.push_back(here_.wire.back());
  Nanos now = kNow;
  for (int i = 0; i < rounds(300'000); ++i) {
    Bytes frame = seeds[random() % seeds.size()];
    const size_t from = i % 2 == 0 ? 14 : 0;
    for (uint64_t flips = random() % 4; flips != 0; --flips) {
      frame[from + random() % (frame.size() - from)] = static_cast<uint8_t>(random());
    }
    if (random() % 4 == 0) frame.resize(random() % (frame.size() + 1));
    if (random() % 2 == 0 && frame.size() > 42) seal_frame(frame);
    now += static_cast<Nanos>(random() % 5000);
    if (random() % 2 == 0) {
      here_.from_host(frame, now);
    } else {
      here_.from_wire(frame, now);
    }
    here_.poll(now);
    here_.wire.clear();
    here_.host.clear();
  }
  here_.engine().flush();
  EXPECT_EQ(here_.held(), 0U);
  EXPECT_GT(here_.count(Counter::kWireDropped), 1000U);
  EXPECT_GT(here_.count(Counter::kRestored), 1000U);
}

}  // namespace
}  // namespace gradlane::test::repacking_test
