// packet_view_test.cc - frames in, layers out; fields and checksums are compared with code written from the RFCs
#include "dataplane/accelerator/engine/packet_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "tests/compress/test_floats.h"
#include "tests/dataplane/accelerator/engine/frames.h"

namespace gradlane::test::packet_view_test {
namespace {

using accel::Layer;
using accel::PacketView;

// Parses a copy in a heap block of its exact size, so that the address sanitizer notices any read beyond it.
PacketView view(const Bytes& frame) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[frame.size()]);
  if (!frame.empty()) std::memcpy(exact.get(), frame.data(), frame.size());
  return accel::view_packet({exact.get(), frame.size()});
}

Packet tcp() { return {.tcp_options = timestamps(1, 2), .payload = some_bytes(100)}; }
Packet udp() { return {.protocol = 17, .payload = some_bytes(100)}; }
Packet with(Packet packet, const std::function<void(Packet&)>& change) {
  change(packet);
  return packet;
}

struct Row {
  const char* what;
  Packet packet;
  Layer want;
  std::function<void(Bytes&)> change = [](Bytes&) {};
};

std::function<void(Bytes&)> set8(size_t at, uint8_t value) {
  return [=](Bytes& frame) { frame[at] = value; };
}
std::function<void(Bytes&)> set16(size_t at, unsigned value) {
  return [=](Bytes& frame) { put16(frame, at, value); };
}

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    Bytes frame = frame_of(row.packet);
    row.change(frame);
    EXPECT_EQ(view(frame).layer, row.want) << row.what;
  }
}

const Bytes kNops{1, 1, 1, 0};

TEST(PacketView, Layers) {
  check({
      {"TCP", tcp(), Layer::kTcp},
      {"UDP", udp(), Layer::kUdp},
      {"TCP without payload", Packet{}, Layer::kTcp},
      {"UDP without payload", Packet{.protocol = 17}, Layer::kUdp},
      {"a VLAN tag", with(tcp(), [](Packet& p) { p.vlan = 7; }), Layer::kOther},
      {"IPv6", tcp(), Layer::kOther, set16(12, 0x86dd)},
      {"ARP", tcp(), Layer::kOther, set16(12, 0x0806)},
      {"an IEEE 802.3 length", tcp(), Layer::kOther, set16(12, 46)},
      {"version 6", tcp(), Layer::kOther, set8(kIp, 0x65)},
      {"IP header of 16 bytes", tcp(), Layer::kBroken, set8(kIp, 0x44)},
      {"packet shorter than its header", tcp(), Layer::kBroken, set16(kIp + 2, 19)},
      {"packet longer than the frame", tcp(), Layer::kBroken, set16(kIp + 2, 20 + 32 + 101)},
      {"ICMP", tcp(), Layer::kIpv4, set8(kIp + 9, 1)},
      {"UDP-Lite", udp(), Layer::kIpv4, set8(kIp + 9, 136)},
      {"an IP header and no more", tcp(), Layer::kIpv4, set16(kIp + 2, 20)},
      {"later fragment", with(tcp(), [](Packet& p) { p.fragment = 0x2001; }), Layer::kIpv4},
      {"last fragment", with(udp(), [](Packet& p) { p.fragment = 0x1fff; }), Layer::kIpv4},
      {"first fragment, TCP", with(tcp(), [](Packet& p) { p.fragment = 0x2000; }), Layer::kFirstFragment},
      {"first fragment, UDP", with(udp(), [](Packet& p) { p.fragment = 0x2000; }), Layer::kFirstFragment,
       set16(kL4 + 4, 3000)},
      {"first fragment, UDP length of 7", with(udp(), [](Packet& p) { p.fragment = 0x2000; }), Layer::kIpv4,
       set16(kL4 + 4, 7)},
      {"first fragment, ends in the TCP header", with(tcp(), [](Packet& p) { p.fragment = 0x2000; }), Layer::kIpv4,
       set16(kIp + 2, 20 + 31)},
      {"first fragment with options", with(tcp(), [](Packet& p) { p.fragment = 0x2000, p.ip_options = kNops; }),
       Layer::kFirstFragment},
      {"may be fragmented, is not", with(tcp(), [](Packet& p) { p.fragment = 0; }), Layer::kTcp},
      {"reserved bit", with(tcp(), [](Packet& p) { p.fragment = 0x8000; }), Layer::kTcp},
      {"IP options, TCP", with(tcp(), [](Packet& p) { p.ip_options = kNops; }), Layer::kOptions},
      {"IP options, UDP", with(udp(), [](Packet& p) { p.ip_options = Bytes(40, 1); }), Layer::kOptions},
      {"packet ends in the TCP header", tcp(), Layer::kIpv4, set16(kIp + 2, 39)},
      {"packet ends in the TCP options", tcp(), Layer::kIpv4, set16(kIp + 2, 51)},
      {"TCP header of 16 bytes", tcp(), Layer::kIpv4, set8(kL4 + 12, 0x40)},
      {"TCP header longer than the packet", Packet{}, Layer::kIpv4, set8(kL4 + 12, 0x60)},
      {"TCP reserved bits", tcp(), Layer::kTcp, set8(kL4 + 12, 0x8f)},
      {"packet ends in the UDP header", udp(), Layer::kIpv4, set16(kIp + 2, 27)},
      {"UDP length of 7", udp(), Layer::kIpv4, set16(kL4 + 4, 7)},
      {"UDP longer than the packet", udp(), Layer::kIpv4, set16(kL4 + 4, 109)},
      {"UDP shorter than the packet", udp(), Layer::kIpv4, set16(kL4 + 4, 107)},
      {"UDP length of 0", udp(), Layer::kIpv4, set16(kL4 + 4, 0)},
  });
}

TEST(PacketView, Fields) {
  Packet packet = tcp();
  packet.ip_options = kNops;
  packet.flags = 0xd8;
  packet.tos = 0x2b;
  packet.fragment = 0xc000;
  Bytes frame = frame_of(packet);
  frame.resize(frame.size() + 9);  // padding
  const PacketView seen = view(frame);
  EXPECT_EQ(seen.layer, Layer::kOptions);
  EXPECT_EQ(seen.tos, 0x2b);
  EXPECT_TRUE(seen.reserved_bit);
  EXPECT_EQ(seen.ip_bytes, 24U);
  EXPECT_EQ(seen.length, frame.size() - 14 - 9);
  EXPECT_EQ(seen.key, (accel::FlowKey{kTheirIp, kOurIp, 40000, 5001, 6}));
  EXPECT_EQ(seen.key.reversed(), (accel::FlowKey{kOurIp, kTheirIp, 5001, 40000, 6}));
  EXPECT_EQ(seen.l4, 38U);
  EXPECT_EQ(seen.payload, 70U);
  EXPECT_EQ(seen.payload_bytes, 100U);
  EXPECT_EQ(seen.seq, 1000U);
  EXPECT_EQ(seen.ack, 2000U);
  EXPECT_EQ(seen.flags, 0xd8);
  EXPECT_EQ(seen.window, 500);
  const PacketView datagram = view(frame_of(udp()));
  EXPECT_EQ(datagram.key, (accel::FlowKey{kTheirIp, kOurIp, 40000, 5001, 17}));
  EXPECT_EQ(datagram.payload, 42U);
  EXPECT_EQ(datagram.payload_bytes, 100U);
  EXPECT_FALSE(datagram.reserved_bit);
  packet.fragment = 0x2000;
  EXPECT_EQ(view(frame_of(packet)).payload_bytes, 100U);  // payload in this frame, which is a first fragment
  EXPECT_EQ(view(frame_of(packet)).seq, 1000U);
}

TEST(PacketView, MayCompress) {
  EXPECT_TRUE(may_compress(view(frame_of(tcp()))));
  EXPECT_TRUE(may_compress(view(frame_of(udp()))));
  EXPECT_FALSE(may_compress(view(frame_of(Packet{}))));
  EXPECT_FALSE(may_compress(view(frame_of(with(udp(), [](Packet& p) { p.fragment = 0xc000; })))));
  EXPECT_FALSE(may_compress(view(frame_of(with(udp(), [](Packet& p) { p.fragment = 0x2000; })))));
  EXPECT_FALSE(may_compress(view(frame_of(with(udp(), [](Packet& p) { p.ip_options = kNops; })))));
  EXPECT_FALSE(may_compress(PacketView{}));
  for (unsigned flags = 0; flags < 256; ++flags) {
    const Packet packet = with(tcp(), [=](Packet& p) { p.flags = static_cast<uint8_t>(flags); });
    EXPECT_EQ(may_compress(view(frame_of(packet))), (flags & 0x27) == 0) << flags;
  }
}

TEST(PacketView, EveryLength) {
  for (const Packet& packet : {tcp(), udp(), with(tcp(), [](Packet& p) { p.ip_options = Bytes(40, 1); })}) {
    const Bytes whole = frame_of(packet);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      EXPECT_LT(view(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes))).layer, Layer::kIpv4);
    }
    Bytes padded = whole;
    for (size_t more = 1; more <= 64; ++more) {
      padded.push_back(0xee);
      EXPECT_EQ(view(padded).layer, view(whole).layer);
      EXPECT_EQ(view(padded).payload_bytes, view(whole).payload_bytes);
    }
  }
}

// All reported positions lie within the frame, whatever its bytes are.
TEST(PacketView, AnyBytes) {
  Rng rng(1);
  const Bytes frames[] = {frame_of(tcp()), frame_of(udp())};
  size_t seen[static_cast<size_t>(Layer::kUdp) + 1] = {};
  for (int round = 0; round < 100000; ++round) {
    Bytes frame = frames[rng.below(2)];
    for (size_t i = 0; i < 3; ++i) frame[12 + rng.below(42)] = static_cast<uint8_t>(rng.bits());
    if (rng.one_in(8)) frame[kIp] = static_cast<uint8_t>(0x45 + rng.below(3));
    if (rng.one_in(8)) put16(frame, kIp + 6, 0x2000);
    if (rng.one_in(4)) frame.resize(rng.below(frame.size()));
    const PacketView got = view(frame);
    ++seen[static_cast<size_t>(got.layer)];
    if (got.layer < Layer::kIpv4) continue;
    ASSERT_LE(14 + got.length, frame.size());
    ASSERT_LE(got.ip_bytes, got.length);
    if (got.layer == Layer::kIpv4) continue;
    ASSERT_EQ(got.l4, 14 + got.ip_bytes);
    ASSERT_GE(got.payload, got.l4 + 8);
    ASSERT_EQ(got.payload + got.payload_bytes, 14 + got.length);
  }
  for (const size_t count : seen) EXPECT_GT(count, 100U);
}

TEST(PacketView, TooLong) {
  const size_t mtu = 152;  // just enough for tcp()
  Bytes frame = frame_of(tcp());
  ASSERT_EQ(frame.size(), mtu + 14);
  EXPECT_FALSE(accel::too_long(frame, mtu));
  EXPECT_TRUE(accel::too_long(frame, mtu - 1));
  Bytes tagged = frame_of(with(tcp(), [](Packet& p) { p.vlan = 7; }));
  EXPECT_FALSE(accel::too_long(tagged, mtu));
  EXPECT_TRUE(accel::too_long(tagged, mtu - 1));
  tagged.insert(tagged.begin() + 12, {0x88, 0xa8, 0, 1});
  EXPECT_FALSE(accel::too_long(tagged, mtu));
  EXPECT_TRUE(accel::too_long(tagged, mtu - 1));
  put16(frame, kIp + 2, mtu + 1);
  EXPECT_TRUE(accel::too_long(frame, mtu));         // the frame is cut off
  EXPECT_FALSE(accel::too_long(frame, mtu + 100));  // no offload made this frame
  put16(frame, 12, 0x86dd);
  EXPECT_FALSE(accel::too_long(frame, mtu));
  EXPECT_FALSE(accel::too_long(Bytes{}, 0));
  EXPECT_FALSE(accel::too_long(Bytes(33, 0xff), 0));
}

// ---- Checksums

TEST(Internet, OnesSumOfEveryLengthAtAnyAddress) {
  const Bytes bytes = some_bytes(300);
  for (size_t offset = 0; offset < 3; ++offset) {
    for (size_t count = 0; count <= 260; ++count) {
      const std::unique_ptr<uint8_t[]> exact(new uint8_t[offset + count]);
      std::memcpy(exact.get() + offset, bytes.data() + offset, count);
      const unsigned want = 0xffff - slow_checksum(bytes, offset, offset + count, SIZE_MAX);
      const unsigned got = __builtin_bswap16(internet::ones_sum(exact.get() + offset, count));
      ASSERT_EQ(got, want) << offset << " " << count;
    }
  }
}

TEST(PacketView, ChecksumsOfEverySize) {
  for (Packet packet : {tcp(), udp(), with(tcp(), [](Packet& p) { p.ip_options = Bytes(12, 3); })}) {
    for (size_t bytes = 0; bytes < 150; ++bytes) {
      packet.payload = some_bytes(bytes);
      Bytes frame = frame_of(packet);
      EXPECT_TRUE(accel::ip_checksum_right(frame.data()));
      EXPECT_TRUE(l4_checksum_right(frame.data(), view(frame))) << bytes;
      EXPECT_FALSE(l4_checksum_unfinished(frame.data(), view(frame))) << bytes;
      const Bytes before = frame;
      put16(frame, l4_checksum_at(frame), 0xbeef);
      set_l4_checksum(frame.data(), view(frame));
      EXPECT_EQ(frame, before) << bytes;
    }
  }
}

TEST(PacketView, EveryBitCounts) {
  for (const Packet& packet : {tcp(), udp(), with(udp(), [](Packet& p) { p.ip_options = Bytes(12, 3); })}) {
    Bytes frame = frame_of(packet);
    const PacketView seen = view(frame);
    for (size_t bit = 8 * kIp; bit < 8 * frame.size(); ++bit) {
      const auto flip = static_cast<uint8_t>(1 << bit % 8);
      frame[bit / 8] ^= flip;
      // The IP header's length and protocol decide which bytes the L4 checksum covers.
      if (bit / 8 < seen.l4) {
        EXPECT_TRUE(!accel::ip_checksum_right(frame.data())) << bit;
      } else {
        EXPECT_FALSE(l4_checksum_right(frame.data(), seen)) << bit;
      }
      frame[bit / 8] ^= flip;
    }
  }
}

TEST(PacketView, UdpChecksumOfZeroIsNone) {
  Bytes frame = frame_of(with(udp(), [](Packet& p) { p.udp_checksum = false; }));
  EXPECT_EQ(get16(frame, l4_checksum_at(frame)), 0U);
  EXPECT_TRUE(l4_checksum_right(frame.data(), view(frame)));
  // A UDP checksum that is computed as 0 is sent as 0xffff.
  Packet packet = udp();
  packet.payload = {0, 0};
  const unsigned checksum = right_l4_checksum(frame_of(packet));
  put16(packet.payload, 0, checksum);
  frame = frame_of(packet);
  ASSERT_EQ(get16(frame, l4_checksum_at(frame)), 0xffffU);
  EXPECT_TRUE(l4_checksum_right(frame.data(), view(frame)));
  put16(frame, l4_checksum_at(frame), 1);
  set_l4_checksum(frame.data(), view(frame));
  EXPECT_EQ(get16(frame, l4_checksum_at(frame)), 0xffffU);
  // TCP has no such rule.
  Bytes segment = frame_of(tcp());
  put16(segment, l4_checksum_at(segment), 0);
  EXPECT_FALSE(l4_checksum_right(segment.data(), view(segment)));
}

TEST(PacketView, Unfinished) {
  for (Packet packet : {tcp(), udp()}) {
    Bytes frame = frame_of(packet);
    Bytes pseudo(frame.begin() + kIp + 12, frame.begin() + kIp + 20);
    const size_t l4_bytes = frame.size() - kL4;
    pseudo.insert(pseudo.end(),
                  {0, packet.protocol, static_cast<uint8_t>(l4_bytes >> 8), static_cast<uint8_t>(l4_bytes)});
    put16(frame, l4_checksum_at(frame), 0xffff - slow_checksum(pseudo, 0, pseudo.size(), SIZE_MAX));
    EXPECT_TRUE(l4_checksum_unfinished(frame.data(), view(frame)));
    EXPECT_FALSE(l4_checksum_right(frame.data(), view(frame)));
    set_l4_checksum(frame.data(), view(frame));
    EXPECT_EQ(frame, frame_of(packet));
    // Here the right checksum happens to be the same number as the sum of the pseudo-header. The loop chooses the
    // payload so.
    const unsigned sum = 0xffff - slow_checksum(pseudo, 0, pseudo.size(), SIZE_MAX);
    packet.payload[0] = packet.payload[1] = 0;
    packet.payload.resize(100);
    unsigned fill = 0;
    for (; fill < 0x10000; ++fill) {
      put16(packet.payload, 0, fill);
      frame = frame_of(packet);
      if (get16(frame, l4_checksum_at(frame)) == sum) break;
    }
    ASSERT_LT(fill, 0x10000U);
    EXPECT_FALSE(l4_checksum_unfinished(frame.data(), view(frame)));
  }
}

// ---- A changed header equals one that is made with the new values.

TEST(PacketView, SetTos) {
  Rng rng(2);
  for (unsigned tos = 0; tos < 256; ++tos) {
    Packet packet = udp();
    packet.tos = static_cast<uint8_t>(rng.bits());
    packet.id = static_cast<uint16_t>(rng.bits());
    packet.destination_ip = rng.bits();
    Bytes frame = frame_of(packet);
    accel::set_tos(frame.data(), static_cast<uint8_t>(tos));
    packet.tos = static_cast<uint8_t>(tos);
    EXPECT_EQ(frame, frame_of(packet)) << tos;
  }
}

TEST(PacketView, SetReservedBitAndBack) {
  for (unsigned id = 0; id < 0x10000; id += 7) {
    for (const uint16_t fragment : {uint16_t{0}, uint16_t{0x4000}, uint16_t{0x2001}}) {
      Packet packet{.protocol = 17, .id = static_cast<uint16_t>(id), .fragment = fragment};
      const Bytes before = frame_of(packet);
      Bytes frame = before;
      accel::set_reserved_bit(frame.data(), true);
      packet.fragment |= 0x8000;
      ASSERT_EQ(frame, frame_of(packet)) << id;
      accel::set_reserved_bit(frame.data(), true);
      ASSERT_EQ(frame, frame_of(packet)) << id;
      accel::set_reserved_bit(frame.data(), false);
      ASSERT_EQ(frame, before) << id;
    }
  }
}

TEST(PacketView, SetLength) {
  const Bytes whole = frame_of(tcp());
  for (unsigned length = 20; length < 0x10000; length += 13) {
    Bytes frame = whole, want = whole;
    accel::set_length(frame.data(), length);
    put16(want, kIp + 2, length);
    seal_ip(want);
    ASSERT_EQ(frame, want) << length;
  }
}

TEST(PacketView, ChangesKeepAWrongChecksumWrong) {
  Bytes frame = frame_of(tcp());
  frame[kIp + 10] ^= 1;
  accel::set_tos(frame.data(), 0x30);
  accel::set_reserved_bit(frame.data(), true);
  accel::set_length(frame.data(), 100);
  EXPECT_FALSE(accel::ip_checksum_right(frame.data()));
}

}  // namespace
}  // namespace gradlane::test::packet_view_test
