// bundle_test.cc - packets through the wire change only as the codec changes them, however many share a wire packet
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/compress/test_floats.h"
#include "tests/dataplane/accelerator/engine/bundles.h"
#include "tests/thorough.h"

namespace gradlane::test::bundle_test {
namespace {

using accel::BundleFault;
using accel::BundleReader;

const Codec kFixed = find_codec("fixed:10");

Packet udp(size_t bytes, uint64_t seed = 1) {
  return {.protocol = 17, .payload = payload(Data::kGradients, bytes, seed)};
}
Packet tcp(size_t bytes, uint64_t seed = 1) {
  return {.tcp_options = timestamps(77, 88), .payload = payload(Data::kGradients, bytes, seed)};
}

// ---- One packet

TEST(Bundle, OneOfEverySizeAndKindOfData) {
  const size_t step = thorough() ? 1 : 7;
  for (const char* name : {"fixed:6", "fixed:10", "inceptionn:10"}) {
    const Codec codec = find_codec(name);
    BundleReader reader(codec.isa());
    size_t compressed = 0;
    for (const Data data : kAllData) {
      for (size_t bytes = 0; bytes <= 1472; bytes += step) {
        const unsigned lead = bytes % 2 == 0 ? 0 : bytes / 2 % 4;
        Packet packet{.protocol = static_cast<uint8_t>(bytes % 3 == 0 && bytes <= 1448 ? 6 : 17),
                      .tcp_options = timestamps(1, 2),
                      .payload = payload(data, bytes, bytes, lead)};
        const Bytes frame = frame_of(packet);
        Bundle bundle(codec);
        if (!bundle.add(frame, lead)) continue;
        ++compressed;
        ASSERT_TRUE(bundle.writer().open());
        const Bytes wire = bundle.finish();
        ASSERT_FALSE(bundle.writer().open());
        ASSERT_LT(wire.size(), frame.size()) << name << " " << bytes;
        ASSERT_EQ(fault_in(wire), "") << name << " " << bytes;
        ASSERT_EQ(wire[kIp + 1], kTosWire);
        const Received received = receive(reader, wire);
        ASSERT_EQ(received.fault, BundleFault::kNone) << counter_name(received.fault);
        ASSERT_EQ(received.frames.size(), 1U);
        ASSERT_EQ(received.frames[0], lossy_frame(codec, frame, lead)) << name << " " << bytes;
      }
    }
    EXPECT_GT(compressed, 4000 / step) << name;
  }
}

TEST(Bundle, WireBytesAreAsSpecified) {
  Packet packet = udp(403);
  const Bytes frame = frame_of(packet);
  Bundle bundle(kFixed);
  ASSERT_TRUE(bundle.add(frame, 1));
  const Bytes wire = bundle.finish();
  const Bytes record = record_of(kFixed, frame, 1);
  ASSERT_EQ(wire.size(), kL4 + 8 + 4 + record.size());
  EXPECT_EQ(Bytes(wire.begin() + kL4 + 8, wire.begin() + kL4 + 12), (Bytes{0xa6, 0x21, 4, 10}));
  EXPECT_EQ(Bytes(wire.begin() + kL4 + 12, wire.end()), record);
  // The headers before the group header are the packet's, except for ToS, lengths and checksums.
  for (size_t i = 0; i < kL4 + 8; ++i) {
    const bool made = i == kIp + 1 || i / 2 == (kIp + 2) / 2 || i / 2 == (kIp + 10) / 2 || i >= kL4 + 4;
    EXPECT_TRUE(made || wire[i] == frame[i]) << i;
  }
}

TEST(Bundle, UdpChecksumOfZeroStaysZero) {
  Packet packet = udp(400);
  packet.udp_checksum = false;
  const Bytes frame = frame_of(packet);
  Bundle bundle(kFixed);
  ASSERT_TRUE(bundle.add(frame));
  packet.udp_checksum = true;
  ASSERT_TRUE(bundle.add(frame_of(packet)));
  const Bytes wire = bundle.finish();
  EXPECT_NE(get16(wire, kL4 + 6), 0U);
  EXPECT_EQ(fault_in(wire), "");
  const Received received = receive(wire);
  ASSERT_EQ(received.frames.size(), 2U);
  EXPECT_EQ(received.frames[0], lossy_frame(kFixed, frame, 0));
  EXPECT_EQ(get16(received.frames[0], kL4 + 6), 0U);
  EXPECT_EQ(received.frames[1], lossy_frame(kFixed, frame_of(packet), 0));
  EXPECT_NE(get16(received.frames[1], kL4 + 6), 0U);
}

// ---- Many

void check_many(const std::vector<Packet>& packets, size_t words) {
  Bundle bundle(kFixed);
  size_t want = kL4 + accel::kGroupBytes;
  for (const Packet& packet : packets) {
    const Bytes frame = frame_of(packet);
    ASSERT_TRUE(bundle.add(frame));
    want += record_of(kFixed, frame).size();
  }
  EXPECT_EQ(bundle.writer().records(), packets.size());
  const Bytes wire = bundle.finish();
  EXPECT_EQ(wire.size(), want + (packets[0].protocol == 17 ? 8 : 20 + packets[0].tcp_options.size()) + 4 * words);
  EXPECT_EQ(fault_in(wire), "");
  const Received received = receive(wire);
  ASSERT_EQ(received.fault, BundleFault::kNone) << counter_name(received.fault);
  ASSERT_EQ(received.frames.size(), packets.size());
  for (size_t i = 0; i < packets.size(); ++i) {
    EXPECT_EQ(received.frames[i], lossy_frame(kFixed, frame_of(packets[i]), 0)) << i;
  }
}

// Returns packets that follow one another, as a host sends them. Their ids and sequence numbers may wrap around.
std::vector<Packet> stream(Packet first, size_t count, size_t bytes) {
  std::vector<Packet> packets;
  for (size_t i = 0; i < count; ++i) {
    first.payload = payload(Data::kZeros, bytes + 4 * (i % 3), i);
    packets.push_back(first);
    ++first.id;
    first.seq += static_cast<uint32_t>(first.payload.size());
  }
  return packets;
}

TEST(Bundle, UdpAsPredicted) {
  Packet first = udp(0);
  first.id = 0xfff0;
  check_many(stream(first, accel::kMaxRecords, 40), 0);
}

TEST(Bundle, TcpAsPredicted) {
  Packet first = tcp(0);
  first.id = 0xfffe;
  first.seq = 0xffffffe0;
  check_many(stream(first, accel::kMaxRecords, 40), 0);
  first.tcp_options = {};
  check_many(stream(first, 5, 1400), 0);
}

TEST(Bundle, UdpWithOtherIds) {
  std::vector<Packet> packets = stream(udp(0), 4, 40);
  packets[1].id = 7;
  packets[2].id = 8;  // as predicted
  packets[3].id = 9;
  packets[3].fragment = 0;  // the flag "don't fragment" is in the same word as the id
  check_many(packets, 2);
}

TEST(Bundle, TcpWithOtherWords) {
  std::vector<Packet> packets = stream(tcp(0), 8, 40);
  const auto behind = [&](size_t from, const std::function<void(Packet&)>& change) {
    for (size_t i = from; i < packets.size(); ++i) change(packets[i]);
  };
  behind(1, [](Packet& p) { p.tcp_options = timestamps(78, 88); });                        // 1 word
  behind(2, [](Packet& p) { p.ack += 100000; });                                           // 1
  behind(3, [](Packet& p) { p.window = 501; });                                            // 1
  behind(4, [](Packet& p) { p.flags |= 8; });                                              // 1: PSH
  behind(5, [](Packet& p) { p.seq -= 5000, p.id = static_cast<uint16_t>(p.id - 9000); });  // 2: a retransmission
  behind(6, [](Packet& p) { p.tcp_options = timestamps(0, 0xffffffff); });                 // 2
  behind(7, [](Packet& p) { p.flags = 0xd0; });                                            // 1: CWR, ECE
  check_many(packets, 9);
}

TEST(Bundle, EveryOptionWord) {
  std::vector<Packet> packets = stream(Packet{.tcp_options = Bytes(40, 1)}, 12, 40);
  for (size_t i = 1; i <= 10; ++i) {
    for (size_t k = i; k < packets.size(); ++k) put32(packets[k].tcp_options, 4 * (i - 1), 0x01010200);
  }
  check_many(packets, 10);
}

// ---- Packets that may not share a wire packet

TEST(Bundle, Refuses) {
  struct Row {
    const char* what;
    std::function<void(Packet&)> change;
    bool udp = false;
  };
  const std::vector<Row> rows = {
      {"source MAC", [](Packet& p) { p.from[5] ^= 1; }},
      {"destination MAC", [](Packet& p) { p.to[0] ^= 4; }},
      {"source address", [](Packet& p) { p.source_ip ^= 1; }},
      {"destination address", [](Packet& p) { p.destination_ip ^= 1; }},
      {"source port", [](Packet& p) { p.source_port ^= 1; }},
      {"destination port", [](Packet& p) { p.destination_port ^= 1; }},
      {"protocol", [](Packet& p) { p.protocol = 17; }},
      {"ToS", [](Packet& p) { p.tos = 0x20; }},
      {"ECN", [](Packet& p) { p.tos |= 2; }},
      {"TTL", [](Packet& p) { ++p.ttl; }},
      {"IP options",
       [](Packet& p) {
         p.ip_options = {1, 1, 1, 1};
       }},
      {"a fragment", [](Packet& p) { p.fragment = 0x2000; }},
      {"reserved bit", [](Packet& p) { p.fragment = 0xc000; }},
      {"fewer TCP options", [](Packet& p) { p.tcp_options.resize(8); }},
      {"more TCP options", [](Packet& p) { p.tcp_options.resize(16, 1); }},
      {"urgent pointer", [](Packet& p) { p.urgent = 1; }},
      {"FIN", [](Packet& p) { p.flags |= 1; }},
      {"SYN", [](Packet& p) { p.flags |= 2; }},
      {"RST", [](Packet& p) { p.flags |= 4; }},
      {"URG", [](Packet& p) { p.flags |= 32; }},
      {"UDP port", [](Packet& p) { p.source_port ^= 1; }, true},
      {"UDP, reserved bit", [](Packet& p) { p.fragment = 0x8000; }, true},
      {"UDP, TTL", [](Packet& p) { --p.ttl; }, true},
      {"UDP, ECN", [](Packet& p) { p.tos |= 1; }, true},
  };
  for (const Row& row : rows) {
    const Packet first = row.udp ? udp(400, 1) : tcp(400, 1);
    Packet second = row.udp ? udp(400, 2) : tcp(400, 2);
    Bundle bundle(kFixed);
    ASSERT_TRUE(bundle.add(frame_of(first)));
    row.change(second);
    EXPECT_FALSE(bundle.add(frame_of(second))) << row.what;
    // The refused packet has changed nothing.
    EXPECT_EQ(bundle.writer().records(), 1U) << row.what;
    const Received received = receive(bundle.finish());
    ASSERT_EQ(received.frames.size(), 1U) << row.what;
    EXPECT_EQ(received.frames[0], lossy_frame(kFixed, frame_of(first), 0)) << row.what;
  }
  const Bytes frame = frame_of(tcp(400));
  accel::BundleWriter closed;
  EXPECT_FALSE(closed.open());
  EXPECT_FALSE(closed.add(frame.data(), accel::view_packet(frame), record_of(kFixed, frame)));
}

TEST(Bundle, FillsTheMtuAndNoMore) {
  for (size_t mtu = 100; mtu <= 1500; ++mtu) {
    std::vector<Packet> packets = stream(udp(0), 2, 44);
    packets[0].payload = payload(Data::kGradients, 44, mtu);
    packets[1].id = 9;
    Bundle bundle(kFixed, mtu);
    size_t bytes = kL4 - kIp + 8 + 4, added = 0;
    for (uint64_t seed = mtu;; ++seed) {
      Packet& packet = packets[added != 0];
      packet.payload = payload(seed % 5 == 0 ? Data::kMixed : Data::kGradients, 44 + 4 * (seed % 9), seed);
      const Bytes frame = frame_of(packet);
      const size_t record = record_of(kFixed, frame).size();
      // Each packet has the same id, and not the predicted one, so it needs a header word.
      const size_t more = record + (added == 1 ? 4 : 0) + (added > 1 ? 4 : 0);
      if (record == 0) continue;
      const bool fits = bytes + more <= mtu && added < accel::kMaxRecords;
      ASSERT_EQ(bundle.add(frame), fits) << mtu;
      if (!fits) break;
      bytes += more;
      ++added;
    }
    const Bytes wire = bundle.finish();
    ASSERT_EQ(wire.size(), 14 + bytes);
    const Received received = receive(wire, mtu < 128 ? 128 : mtu);
    ASSERT_EQ(received.fault, BundleFault::kNone);
    ASSERT_EQ(received.frames.size(), added);
  }
}

TEST(Bundle, NoMoreThan32) {
  const std::vector<Packet> packets = stream(udp(0), accel::kMaxRecords + 1, 24);
  Bundle bundle(kFixed);
  for (size_t i = 0; i < packets.size(); ++i) EXPECT_EQ(bundle.add(frame_of(packets[i])), i < accel::kMaxRecords);
  EXPECT_EQ(receive(bundle.finish()).frames.size(), accel::kMaxRecords);
}

// ---- A change on the way applies to all packets in a wire packet.

TEST(Bundle, ChangesOnTheWayAreCarriedOver) {
  struct Row {
    const char* what;
    std::function<void(Packet&)> change;  // the expected change of each packet
    std::function<void(Bytes&)> on_the_way;
  };
  const std::vector<Row> rows = {
      {"nothing", [](Packet&) {}, [](Bytes&) {}},
      {"CE", [](Packet& p) { p.tos |= 3; }, [](Bytes& wire) { wire[kIp + 1] |= 3; }},
      {"TTL", [](Packet& p) { p.ttl = 3; }, [](Bytes& wire) { wire[kIp + 8] = 3; }},
      {"addresses", [](Packet& p) { p.source_ip = 1, p.destination_ip = 2; },
       [](Bytes& wire) { put32(wire, kIp + 12, 1), put32(wire, kIp + 16, 2); }},
      {"ports", [](Packet& p) { p.source_port = 1, p.destination_port = 2; },
       [](Bytes& wire) { put16(wire, kL4, 1), put16(wire, kL4 + 2, 2); }},
      {"MAC addresses", [](Packet& p) { p.to[5] = 0x77, p.from[4] = 0x88; },
       [](Bytes& wire) { wire[5] = 0x77, wire[10] = 0x88; }},
      {"padding", [](Packet&) {}, [](Bytes& wire) { wire.resize(wire.size() + 18, 0xee); }},
  };
  for (const Row& row : rows) {
    for (const bool is_udp : {false, true}) {
      std::vector<Packet> packets = stream(is_udp ? udp(0) : tcp(0), 7, 120);
      for (Packet& packet : packets) packet.tos |= 2;  // ECT(0)
      Bundle bundle(kFixed);
      for (const Packet& packet : packets) ASSERT_TRUE(bundle.add(frame_of(packet)));
      Bytes wire = bundle.finish();
      EXPECT_EQ(wire[kIp + 1], kTosWire | 2);
      row.on_the_way(wire);
      seal_frame(wire);
      const Received received = receive(wire);
      ASSERT_EQ(received.fault, BundleFault::kNone) << row.what;
      ASSERT_EQ(received.frames.size(), packets.size());
      for (size_t i = 0; i < packets.size(); ++i) {
        row.change(packets[i]);
        EXPECT_EQ(received.frames[i], lossy_frame(kFixed, frame_of(packets[i]), 0)) << row.what << " " << i;
      }
    }
  }
}

TEST(Bundle, OfAnyCodecInTurn) {
  BundleReader reader;
  for (int round = 0; round < 2; ++round) {
    for (const char* name : {"fixed:10", "fixed:11", "inceptionn:10", "inceptionn:10,truncate", "bf16"}) {
      const Codec codec = find_codec(name);
      Bundle bundle(codec);
      const Bytes frame = frame_of(udp(1200));
      ASSERT_TRUE(bundle.add(frame));
      const Received received = receive(reader, bundle.finish());
      ASSERT_EQ(received.frames.size(), 1U) << name;
      EXPECT_EQ(received.frames[0], lossy_frame(codec, frame, 0)) << name;
    }
  }
}

// ---- Hellos

TEST(Bundle, HelloAndAnswer) {
  const Bytes like = frame_of(tcp(300));
  Bytes hello(accel::kHelloFrameBytes);
  const uint64_t nonce = 0x0123456789abcdef;
  ASSERT_EQ(accel::write_hello(hello.data(), like.data(), 18400, kTosWire, accel::kKindHello, nonce), hello.size());
  const Bytes content{0xa6, 0x22, 0, 0, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01};
  Packet want{.protocol = 17, .tos = kTosWire, .id = 0, .source_port = 18400, .destination_port = 18400};
  want.payload = content;
  EXPECT_EQ(hello, frame_of(want));
  hello.resize(60);  // as Ethernet pads it
  hello[kIp + 1] |= 3;
  hello[kIp + 8] = 60;
  seal_frame(hello);
  BundleReader reader;
  EXPECT_TRUE(receive(reader, hello).frames.empty());
  EXPECT_EQ(reader.begin(hello, accel::view_packet(hello), kMtu), BundleFault::kNone);
  EXPECT_EQ(reader.kind(), accel::kKindHello);
  EXPECT_EQ(reader.nonce(), nonce);
  EXPECT_EQ(reader.records(), 0U);

  hello.resize(accel::answer_hello(hello.data(), accel::view_packet(hello)));
  std::swap(want.to, want.from);
  std::swap(want.source_ip, want.destination_ip);
  want.payload[1] = 0x23;
  EXPECT_EQ(hello, frame_of(want));
  EXPECT_EQ(reader.begin(hello, accel::view_packet(hello), kMtu), BundleFault::kNone);
  EXPECT_EQ(reader.kind(), accel::kKindAnswer);
  EXPECT_EQ(reader.nonce(), nonce);
}

}  // namespace
}  // namespace gradlane::test::bundle_test
