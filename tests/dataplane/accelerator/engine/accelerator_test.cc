// accelerator_test.cc - the engine: packets that are compressed, packets that pass unchanged, and packets at the far
// host
#include "dataplane/accelerator/engine/accelerator.h"

#include <gtest/gtest.h>

#include "tests/dataplane/accelerator/engine/two_ends.h"

namespace gradlane::test::accelerator_test {
namespace {

using accel::Accelerator;
using accel::Counter;

constexpr Nanos kNow = End::kStart;

class AcceleratorTest : public ::testing::Test {
 protected:
  ~AcceleratorTest() override {
    EXPECT_EQ(ends_.far.held(), 0U);
    ends_.near.engine().flush();
    EXPECT_EQ(ends_.near.held(), 0U);
  }
  Bytes expected(const Bytes& frame, size_t lead = 0) const { return lossy_frame(setup_.codec, frame, lead); }

  Accelerator::Setup setup_ = with_hold(0);
  TwoEnds ends_{setup_};
  End& near_ = ends_.near;
  End& far_ = ends_.far;
};

TEST_F(AcceleratorTest, EverythingElsePassesAsItIsAndInOrder) {
  ends_.meet();
  const Bytes data = payload(Data::kGradients, 1400, 1);
  std::vector<Bytes> frames = {
      {},
      {1, 2, 3},
      Bytes(60, 0xff),
      frame_of(udp(data, 0)),
      frame_of(udp(data, 0x2c)),
      frame_of({.tos = 0x20, .payload = data}),
      frame_of({.vlan = 7, .payload = data}),
      frame_of({.fragment = 0x2000, .payload = data}),
      frame_of({.fragment = 0x00b4, .payload = data}),
      frame_of({.ip_options = Bytes(8, 1), .payload = data}),
      frame_of({.flags = 0x02, .payload = data}),
      frame_of({.flags = 0x04}),
  };
  Bytes ipv6 = frames[3];
  ipv6[12] = 0x86;
  ipv6[13] = 0xdd;
  frames.push_back(ipv6);
  for (const Bytes& frame : frames) near_.from_host(frame);
  EXPECT_EQ(near_.wire, frames);
  for (const Bytes& frame : frames) near_.from_wire(frame);
  EXPECT_EQ(near_.host, frames);
}

TEST_F(AcceleratorTest, UdpIsCompressedAndRestored) {
  ends_.meet();
  for (const Data kind : kAllData) {
    for (const size_t bytes : {64U, 68U, 1000U, 1472U}) {
      const Bytes frame = frame_of(udp(payload(kind, bytes, bytes)));
      near_.from_host(frame);
      ASSERT_EQ(near_.wire.size(), 1U);
      EXPECT_LE(near_.wire[0].size(), frame.size());
      const bool compressed = near_.wire[0][15] == kTosWire;
      ends_.deliver();
      ASSERT_EQ(far_.host.size(), 1U);
      EXPECT_EQ(far_.host[0], compressed ? expected(frame) : frame);
      EXPECT_EQ(fault_in(far_.host[0]), "");
      far_.host.clear();
    }
  }
  EXPECT_GT(near_.count(Counter::kCompressed), 12U);
  EXPECT_GT(near_.count(Counter::kRawNoGain), 0U);
  EXPECT_EQ(near_.count(Counter::kCompressed), far_.count(Counter::kRestored));
}

TEST_F(AcceleratorTest, NothingIsCompressedForWhoDoesNotAnswer) {
  const Bytes frame = frame_of(udp(payload(Data::kGradients, 1000, 1)));
  for (Nanos now = kNow; now < kNow + 5 * kSecond; now += 100 * kMillisecond) {
    near_.wire.clear();
    near_.from_host(frame, now);
    ASSERT_EQ(near_.wire.size(), 1U);
    EXPECT_EQ(near_.wire[0], frame);
    near_.poll(now);
  }
  EXPECT_EQ(near_.count(Counter::kRawNoPeer), 50U);
  EXPECT_GT(near_.count(Counter::kHelloSent), 5U);
}

TEST_F(AcceleratorTest, AnAcceleratorThatStopsAnsweringGetsNothingCompressed) {
  ends_.meet();
  const Bytes frame = frame_of(udp(payload(Data::kGradients, 1000, 1)));
  near_.from_host(frame);
  EXPECT_NE(near_.wire.back(), frame);
  near_.from_host(frame, kNow + accel::Peers::kHolds + 1);
  EXPECT_EQ(near_.wire.back(), frame);
  near_.wire.clear();
}

TEST_F(AcceleratorTest, AForgedAnswerIsNotBelieved) {
  const Bytes frame = frame_of(udp(payload(Data::kGradients, 1000, 1)));
  near_.from_host(frame);
  near_.poll();
  Packet answer = udp({0xa6, 0x23, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, kTosWire);
  std::swap(answer.source_ip, answer.destination_ip);
  near_.from_wire(frame_of(answer));
  EXPECT_EQ(near_.count(Counter::kHelloRefused), 1U);
  near_.wire.clear();
  near_.from_host(frame);
  EXPECT_EQ(near_.wire.at(0), frame);
  EXPECT_TRUE(near_.host.empty());
}

TEST_F(AcceleratorTest, OrdinaryPacketsWithTheWiresCodePointPassUnchanged) {
  ends_.meet();
  const Bytes data = payload(Data::kGradients, 1000, 1);
  Connection connection(kTosWire);
  const std::vector<Bytes> frames = {
      frame_of(udp(data, kTosWire)),
      frame_of(udp(data, kTosWire | 3)),
      frame_of({.tos = kTosWire, .fragment = 0x2000, .payload = data}),
      frame_of({.tos = kTosWire, .fragment = 0x00b4, .payload = data}),
      frame_of({.tos = kTosWire, .ip_options = Bytes(8, 1), .payload = data}),
      connection.syn(),
      connection.data(data),
  };
  for (const Bytes& frame : frames) near_.from_host(frame);
  for (size_t i = 0; i < frames.size(); ++i) {
    Bytes with_bit = frames[i];
    with_bit[20] |= 0x80;
    seal_frame(with_bit);
    EXPECT_EQ(near_.wire.at(i), with_bit) << i;
  }
  ends_.deliver();
  EXPECT_EQ(far_.host, frames);
  near_.from_host(frame_of({.tos = kTosWire, .fragment = 0xc000, .payload = data}));
  EXPECT_TRUE(near_.wire.empty());
  EXPECT_EQ(near_.count(Counter::kWireTosDropped), 1U);
}

TEST_F(AcceleratorTest, WhatIsDamagedOnTheWireIsDropped) {
  ends_.meet();
  near_.from_host(frame_of(udp(payload(Data::kGradients, 1000, 1))));
  const Bytes good = near_.wire.at(0);
  near_.wire.clear();
  for (size_t i = 14; i < good.size(); ++i) {
    Bytes bad = good;
    bad[i] ^= 0x10;
    far_.from_wire(bad);
  }
  // In two of these frames, the changed bit makes another IP version or another code point, so they pass to the host. A
  // third one gets an IP length beyond its end, and is dropped as a super-segment.
  EXPECT_EQ(far_.host.size(), 2U);
  EXPECT_EQ(far_.count(Counter::kSuperSegment), 1U);
  EXPECT_EQ(far_.count(Counter::kWireDropped), good.size() - 14 - 3);
}

TEST_F(AcceleratorTest, WhatIsCutOnTheWireIsDropped) {
  ends_.meet();
  near_.from_host(frame_of(udp(payload(Data::kGradients, 1000, 1))));
  const Bytes good = near_.wire.at(0);
  near_.wire.clear();
  for (size_t bytes = 26; bytes < good.size(); ++bytes)
    far_.from_wire(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)));
  EXPECT_TRUE(far_.host.empty());
  EXPECT_EQ(far_.count(Counter::kWireDropped), good.size() - 26);
}

TEST_F(AcceleratorTest, OffloadsOfTheHostAreDealtWith) {
  ends_.meet();
  near_.from_host(frame_of({.tos = 0, .payload = Bytes(3000, 1)}));
  near_.from_wire(frame_of({.tos = 0, .payload = Bytes(3000, 1)}));
  EXPECT_EQ(near_.count(Counter::kSuperSegment), 2U);
  EXPECT_TRUE(near_.wire.empty());
  for (const uint8_t tos : {uint8_t{0}, kTosCompressed}) {
    const Bytes right = frame_of(udp(payload(Data::kGradients, 1000, 1), tos));
    near_.from_host(unfinished(right));
    ends_.deliver();
    EXPECT_EQ(far_.host.back(), tos == 0 ? right : expected(right));
  }
  EXPECT_EQ(near_.count(Counter::kChecksumFinished), 2U);
}

TEST_F(AcceleratorTest, AWrongChecksumStaysWrong) {
  ends_.meet();
  Connection connection;
  near_.from_host(connection.syn());
  Bytes tcp = connection.data(payload(Data::kGradients, 1448, 1));
  tcp[100] ^= 1;
  Bytes datagram = frame_of(udp(payload(Data::kGradients, 1000, 1)));
  datagram[100] ^= 1;
  near_.wire.clear();
  near_.from_host(tcp);
  near_.from_host(datagram);
  EXPECT_EQ(near_.wire, (std::vector{tcp, datagram}));
  EXPECT_EQ(near_.count(Counter::kRawChecksum), 2U);
}

TEST_F(AcceleratorTest, TcpIsCompressedFromItsSynOn) {
  ends_.meet();
  Connection seen;
  near_.from_host(seen.syn());
  ends_.deliver();
  far_.host.clear();
  size_t at = 0;
  for (const size_t bytes : {1448U, 1446U, 1447U, 1001U, 64U, 1448U}) {
    const Bytes frame = seen.data(payload(Data::kGradients, bytes, bytes, (4 - at % 4) % 4));
    near_.from_host(frame);
    ends_.deliver();
    ASSERT_EQ(far_.host.size(), 1U);
    EXPECT_EQ(far_.host[0], expected(frame, (4 - at % 4) % 4)) << bytes;
    far_.host.clear();
    at += bytes;
  }
  EXPECT_EQ(near_.count(Counter::kCompressed), 6U);
  const Bytes frame = Connection(kTosCompressed, 500, 40001).data(payload(Data::kGradients, 1448, 1));
  near_.from_host(frame);
  EXPECT_EQ(near_.wire.at(0), frame);
  EXPECT_EQ(near_.count(Counter::kRawUnknown), 1U);
  near_.wire.clear();
}

// MPTCP carries data on other connections, too. MD5 and TCP-AO sign the data.
TEST_F(AcceleratorTest, ConnectionsWhoseDataMustNotBeChangedAreNot) {
  ends_.meet();
  const std::vector<std::pair<Bytes, bool>> cases = {
      {{2, 4, 5, 0xb4}, true},
      {{1, 1, 4, 2}, true},
      {{30, 12, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, false},
      {{1, 1, 19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, false},
      {{2, 4, 5, 0xb4, 29, 4, 1, 1}, false},
      {{0, 30, 12, 0}, true},
      {{3, 0, 0, 0}, false},
      {{1, 1, 1, 3}, false},
  };
  uint16_t port = 3000;
  for (const auto& [options, compressed] : cases) {
    Packet packet;
    packet.source_port = ++port;
    packet.flags = 0x02;
    packet.tcp_options = options;
    near_.from_host(frame_of(packet));
    near_.wire.clear();
    packet.flags = 0x10;
    packet.tcp_options = {};
    ++packet.seq;
    packet.payload = payload(Data::kGradients, 1400, 1);
    near_.from_host(frame_of(packet));
    EXPECT_EQ(near_.wire.at(0)[15], compressed ? kTosWire : kTosCompressed) << port - 3001;
    near_.wire.clear();
  }
}

TEST_F(AcceleratorTest, RetransmissionsKeepTheBytesThatWereSent) {
  ends_.meet();
  Connection connection;
  near_.from_host(connection.syn());
  const uint32_t start = connection.seq();
  const Bytes data = payload(Data::kGradients, 2896, 3);
  const Bytes first(data.begin(), data.begin() + 1448), second(data.begin() + 1448, data.end());
  near_.from_host(connection.data(first));
  near_.from_host(connection.data(second));
  ends_.deliver();
  const Bytes sent = lossy(setup_.codec, data, 0);

  // A retransmission of the same segment is the same compressed packet.
  near_.from_host(connection.again(start, first));
  EXPECT_EQ(near_.wire.at(0)[15], kTosWire);
  ends_.deliver();
  EXPECT_EQ(payload_of(far_.host.back()), Bytes(sent.begin(), sent.begin() + 1448));
  EXPECT_EQ(near_.count(Counter::kResent), 1U);

  // A retransmission with other boundaries, in the middle of floats, is uncompressed. It has the values that were sent.
  for (const auto& [from, to] : {std::pair{702, 2150}, {1, 2}, {1447, 1449}, {3, 1449}}) {
    near_.from_host(
        connection.again(start + static_cast<uint32_t>(from), Bytes(data.begin() + from, data.begin() + to)));
    EXPECT_EQ(near_.wire.at(0)[15], kTosCompressed);
    ends_.deliver();
    EXPECT_EQ(payload_of(far_.host.back()), Bytes(sent.begin() + from, sent.begin() + to));
    EXPECT_EQ(fault_in(far_.host.back()), "");
  }
  EXPECT_EQ(near_.count(Counter::kOverwritten), 4U);

  // A retransmission also has these values, uncompressed, if the peer is gone or the program no longer marks its
  // packets.
  near_.from_host(connection.again(start, first), kNow + accel::Peers::kHolds + 1);
  EXPECT_EQ(payload_of(near_.wire.at(0)), Bytes(sent.begin(), sent.begin() + 1448));
  near_.wire.clear();

  // Records of acknowledged bytes are freed.
  EXPECT_EQ(near_.engine().streams().records(), 2U);
  near_.from_wire(connection.ack(start + 1448));
  EXPECT_EQ(near_.engine().streams().records(), 1U);
  Bytes forged = connection.ack(start + 2896);
  forged[l4_checksum_at(forged)] ^= 1;
  near_.from_wire(forged);
  EXPECT_EQ(near_.engine().streams().records(), 1U);
  near_.from_wire(connection.ack(start + 2896));
  EXPECT_EQ(near_.engine().streams().records(), 0U);
}

TEST_F(AcceleratorTest, WithoutABufferARestoredPacketIsLostAndCounted) {
  ends_.meet();
  near_.from_host(frame_of(udp(payload(Data::kGradients, 1000, 1))));
  far_.refuse_buffers(true);
  ends_.deliver();
  EXPECT_TRUE(far_.host.empty());
  EXPECT_EQ(far_.count(Counter::kNoBuffer), 1U);
}

TEST_F(AcceleratorTest, PublishesWhatItCounts) {
  ends_.meet();
  near_.from_host(frame_of(udp(payload(Data::kGradients, 1000, 1))));
  near_.wire.clear();
  near_.poll(kNow + kSecond);
  near_.wire.clear();
  EXPECT_EQ(near_.published("compressed"), 1U);
  EXPECT_EQ(near_.published("payload_bytes"), 1000U);
  EXPECT_EQ(near_.published("bundle_bad_block"), 0U);
  EXPECT_EQ(near_.published("stream_tracked"), 0U);
}

}  // namespace
}  // namespace gradlane::test::accelerator_test
