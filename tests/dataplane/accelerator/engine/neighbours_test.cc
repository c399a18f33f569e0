// neighbours_test.cc - the engine with machines that are not its peer, and with changes that networks make to packets
#include <gtest/gtest.h>

#include "dataplane/accelerator/engine/accelerator.h"
#include "tests/dataplane/accelerator/engine/two_ends.h"

namespace gradlane::test::neighbours_test {
namespace {

using accel::Counter;

constexpr Nanos kNow = End::kStart;

class NeighboursTest : public ::testing::Test {
 protected:
  // Returns the hello that the near accelerator sends after a packet of its host; empty if it sends none.
  Bytes hello(const Packet& to) {
    near_.from_host(frame_of(to));
    near_.wire.clear();
    near_.poll();
    return near_.wire.empty() ? Bytes{} : std::exchange(near_.wire, {}).at(0);
  }
  static Packet reversed(Packet packet) {
    std::swap(packet.from, packet.to);
    std::swap(packet.source_ip, packet.destination_ip);
    std::swap(packet.source_port, packet.destination_port);
    return packet;
  }

  TwoEnds ends_{with_hold(0)};
  End& near_ = ends_.near;
  End& far_ = ends_.far;
  Packet datagram_ = udp(payload(Data::kGradients, 1000, 1));
};

TEST_F(NeighboursTest, NobodyAnswersInTheNameOfOthers) {
  const Bytes question = hello(datagram_);
  ASSERT_EQ(question.size(), accel::kHelloFrameBytes);
  // First the accelerator does not know its host. Then it does, but a switch floods a question that is for another
  // machine.
  far_.from_wire(question);
  EXPECT_TRUE(far_.wire.empty());
  Packet from_host = reversed(datagram_);
  from_host.tos = 0;
  far_.from_host(frame_of(from_host));
  far_.wire.clear();
  Bytes others = question;
  others[5] ^= 1;
  far_.from_wire(others);
  Bytes everybodys = question;
  std::fill_n(everybodys.begin(), 6, uint8_t{0xff});
  far_.from_wire(everybodys);
  EXPECT_TRUE(far_.wire.empty());
  EXPECT_EQ(far_.count(Counter::kHelloOthers), 3U);
  // The host may be a bridge, which sends frames of many MAC addresses. The accelerator still answers for it.
  for (uint8_t i = 0; i < 100; ++i) {
    from_host.from[3] = i;
    far_.from_host(frame_of(from_host));
  }
  far_.wire.clear();
  far_.from_wire(question);
  EXPECT_EQ(far_.wire.size(), 1U);
  EXPECT_TRUE(far_.host.empty());
}

TEST_F(NeighboursTest, TheWiresCodePointOfOrdinaryHostsPasses) {
  const Bytes data = payload(Data::kGradients, 1000, 1);
  std::vector<Bytes> frames;
  for (const uint8_t protocol : {uint8_t{6}, uint8_t{17}}) {
    Packet packet = udp(data, kTosWire);
    packet.protocol = protocol;
    frames.push_back(frame_of(packet));
    packet.fragment = 0x2000;
    frames.push_back(frame_of(packet));
  }
  Bytes ping = frames[2];
  ping[23] = 1;
  seal_frame(ping);
  frames.push_back(ping);
  for (const Bytes& frame : frames) far_.from_wire(frame);
  EXPECT_EQ(far_.host, frames);
  EXPECT_EQ(far_.count(Counter::kForeign), frames.size());

  // An accelerator never sends such packets. So they are dropped if their sender is one.
  ends_.meet();
  far_.host.clear();
  for (const Bytes& frame : frames) far_.from_wire(frame);
  EXPECT_TRUE(far_.host.empty());
  EXPECT_EQ(far_.count(Counter::kWireDropped), frames.size());
}

// After a restart, an accelerator may not know yet which other accelerators send it compressed packets.
TEST_F(NeighboursTest, BundlesAreRestoredWhoeverSentThem) {
  ends_.meet();
  near_.from_host(frame_of(datagram_));
  const Bytes bundle = near_.wire.at(0);
  near_.wire.clear();
  End fresh(with_hold(0));
  fresh.from_wire(bundle);
  ASSERT_EQ(fresh.host.size(), 1U);
  EXPECT_EQ(fresh.host[0], lossy_frame(find_codec(kDefaultLossyCodec), frame_of(datagram_), 0));
  Bytes damaged = bundle;
  damaged[60] ^= 1;
  far_.from_wire(damaged);
  EXPECT_TRUE(far_.host.empty());
  EXPECT_EQ(far_.count(Counter::kWireDropped), 1U);
}

// If a packet that only looks like a bundle were dropped, all its retransmissions would be dropped, too.
TEST_F(NeighboursTest, WhatOnlyLooksLikeABundlePasses) {
  Packet packet = udp(Bytes(100, 3), kTosWire);
  packet.payload[0] = 0xa6;
  packet.payload[1] = 0x21;
  far_.from_wire(frame_of(packet));
  ASSERT_EQ(far_.host.size(), 1U);
  EXPECT_EQ(far_.host[0], frame_of(packet));
}

// The address moves to another machine while packets flow.
TEST_F(NeighboursTest, WhatAnsweredBeforeDoesNotAnswerForAnotherMachine) {
  ends_.meet();
  near_.from_host(frame_of(datagram_));
  EXPECT_EQ(near_.wire.at(0)[15], kTosWire);
  near_.wire.clear();
  datagram_.to[5] ^= 1;
  near_.from_host(frame_of(datagram_));
  EXPECT_EQ(near_.wire.at(0), frame_of(datagram_));
  near_.wire.clear();
  near_.poll(kNow + kMillisecond);
  ASSERT_EQ(near_.wire.size(), 1U);
  EXPECT_EQ(near_.wire[0][5], datagram_.to[5]);
  near_.wire.clear();
}

TEST_F(NeighboursTest, ChecksumsThatTheWireLeftUnfinishedAreFinished) {
  Packet packet = udp(Bytes(100, 7), 0);
  const Bytes right = frame_of(packet);
  far_.from_wire(unfinished(right));
  EXPECT_EQ(far_.host.at(0), right);
  EXPECT_EQ(far_.count(Counter::kWireChecksumFinished), 1U);
  EXPECT_EQ(far_.count(Counter::kChecksumFinished), 0U);
}

TEST_F(NeighboursTest, AWrongIpChecksumStaysWrong) {
  ends_.meet();
  Bytes frame = frame_of(datagram_);
  frame[24] ^= 1;
  near_.from_host(frame);
  EXPECT_EQ(near_.wire.at(0), frame);
  EXPECT_EQ(near_.count(Counter::kRawChecksum), 1U);
  near_.wire.clear();
}

// The host knows the MTU of the whole path, and the accelerator does not.
TEST(Repacked, NoFrameIsLongerThanWhatTheHostSent) {
  TwoEnds ends(with_hold(20 * kMicrosecond));
  ends.meet();
  for (const size_t bytes : {200U, 700U, 1372U}) {
    Packet packet = udp(payload(Data::kGradients, bytes, 1));
    for (int i = 0; i < 40; ++i) ends.near.from_host(frame_of(packet));
    ends.near.engine().flush();
    EXPECT_LT(ends.near.wire.size(), 25U);
    for (const Bytes& frame : ends.near.wire) EXPECT_LE(frame.size(), 42 + bytes);
    ends.deliver();
    EXPECT_EQ(ends.far.host.size(), 40U);
    ends.far.host.clear();
  }
}

TEST(Repacked, WhereThereIsNoPlaceForOneMoreFlowTheOldestGoes) {
  TwoEnds ends(with_hold(20 * kMicrosecond));
  ends.meet();
  Packet packet = udp(payload(Data::kGradients, 1000, 1));
  for (size_t i = 0; i <= accel::OpenBundles::kSlots; ++i) {
    packet.source_port = static_cast<uint16_t>(1000 + i);
    ends.near.from_host(frame_of(packet), kNow + static_cast<Nanos>(i));
  }
  ASSERT_EQ(ends.near.wire.size(), 1U);
  EXPECT_EQ(get16(ends.near.wire[0], 34), 1000U);
  ends.near.engine().flush();
  ends.near.wire.clear();
}

TEST(Repacked, EachPacketWithoutABufferIsCounted) {
  TwoEnds ends(with_hold(20 * kMicrosecond));
  ends.meet();
  for (int i = 0; i < 3; ++i) ends.near.from_host(frame_of(udp(payload(Data::kGradients, 1000, 1))));
  ends.near.engine().flush();
  ends.far.refuse_buffers(true);
  ends.deliver();
  EXPECT_EQ(ends.far.count(Counter::kNoBuffer), 3U);
  EXPECT_EQ(ends.far.held(), 0U);
}

// ---- Retransmissions

class AgainTest : public ::testing::Test {
 protected:
  AgainTest() {
    ends_.meet();
    near_.from_host(connection_.syn());
    start_ = connection_.seq();
    near_.from_host(connection_.data(data_));
    near_.wire.clear();
  }
  TwoEnds ends_{with_hold(0)};
  End& near_ = ends_.near;
  Connection connection_;
  uint32_t start_ = 0;
  Bytes data_ = payload(Data::kGradients, 1448, 3);
};

// Hellos are answered, but compressed packets do not arrive.
TEST_F(AgainTest, WhatDoesNotGetThroughCompressedIsSentUncompressed) {
  const Bytes sent = lossy(find_codec(kDefaultLossyCodec), data_, 0);
  Nanos now = kNow;
  for (; now < kNow + 10 * kSecond; now += 200 * kMillisecond) {
    near_.poll(now);
    ends_.deliver(now);
    near_.from_host(connection_.again(start_, data_), now);
    const Bytes frame = std::exchange(near_.wire, {}).at(0);
    const bool compressed = frame[15] == kTosWire;
    EXPECT_EQ(compressed, now <= kNow + 3 * kSecond) << now - kNow;
    if (!compressed) {
      EXPECT_EQ(payload_of(frame), sent);
      EXPECT_EQ(fault_in(frame), "");
    }
  }
  EXPECT_EQ(near_.count(Counter::kBlocked), 1U);
  // Other connections are not compressed for a while, either. Then compression is tried again.
  const auto is_compressed = [this](uint16_t port, Nanos when) {
    Connection other(kTosCompressed, 5, port);
    near_.from_host(other.syn(), when);
    near_.poll(when);
    ends_.deliver(when);
    near_.from_host(other.data(data_), when);
    return std::exchange(near_.wire, {}).at(0)[15] == kTosWire;
  };
  EXPECT_FALSE(is_compressed(1, now));
  for (; now < kNow + 3 * kSecond + accel::Peers::kBlockedFor; now += kSecond / 2) {
    near_.poll(now);
    ends_.deliver(now);
  }
  EXPECT_FALSE(is_compressed(2, now - kSecond));
  (void)is_compressed(3, now + kSecond);
  EXPECT_TRUE(is_compressed(4, now + kSecond));
}

// An outage does not count, because hellos are not answered either. The connection goes on compressed.
TEST_F(AgainTest, AnOutageBlocksNobody) {
  const Nanos end = kNow + 20 * kSecond;
  for (Nanos now = kNow; now < end; now += 500 * kMillisecond) {
    near_.poll(now);
    near_.from_host(connection_.again(start_, data_), now);
    near_.wire.clear();
  }
  for (Nanos now = end; now < end + 2 * kSecond; now += 500 * kMillisecond) {
    near_.poll(now);
    ends_.deliver(now);
    near_.from_host(connection_.again(start_, data_), now);
  }
  EXPECT_EQ(near_.wire.back()[15], kTosWire);
  EXPECT_EQ(near_.count(Counter::kBlocked), 0U);
  near_.wire.clear();
}

TEST_F(AgainTest, AWrongChecksumStaysWrong) {
  for (const size_t at : {24U, 100U}) {
    Bytes frame = connection_.again(start_ + 1, Bytes(data_.begin() + 1, data_.end()));
    frame[at] ^= 1;
    near_.from_host(frame);
    EXPECT_EQ(std::exchange(near_.wire, {}).at(0), frame);
  }
  EXPECT_EQ(near_.count(Counter::kOverwritten), 0U);
}

}  // namespace
}  // namespace gradlane::test::neighbours_test
