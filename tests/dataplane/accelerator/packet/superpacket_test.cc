// superpacket_test.cc - superpackets of TCP: cut into segments, and joined from segments
#include "dataplane/accelerator/packet/superpacket.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/dataplane/accelerator/engine/frames.h"

namespace gradlane::test::superpacket_test {
namespace {

constexpr uint8_t kFin = 1, kSyn = 2, kPsh = 8, kAck = 0x10, kEce = 0x40, kCwr = 0x80;

Bytes numbered(size_t bytes, size_t seed = 0) {
  Bytes payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<uint8_t>((i + seed) * 31 + (i >> 8));
  return payload;
}

Packet packet_with(size_t payload) {
  Packet packet;
  packet.tcp_options = timestamps(77, 88);
  packet.payload = numbered(payload);
  return packet;
}

// Puts the sum of the pseudo-header into the checksum field, as a kernel does. Returns the header for such a frame.
VnetHeader unfinished(Bytes& frame, size_t segment, size_t l4 = kL4, size_t options = 0) {
  put16(frame, l4 + 16, 0);
  uint32_t sum = 6 + static_cast<uint32_t>(frame.size() - l4);
  for (size_t at = l4 - options - 8; at < l4 - options; at += 2) sum += get16(frame, at);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  put16(frame, l4 + 16, sum);
  return {.flags = VnetHeader::kNeedsChecksum,
          .kind = segment == 0 ? VnetHeader::kOnePacket : VnetHeader::kTcpIpv4,
          .header_bytes = 66,
          .segment_bytes = static_cast<uint16_t>(segment),
          .checksum_start = static_cast<uint16_t>(l4),
          .checksum_field = 16};
}

std::vector<Bytes> cut(const VnetHeader& header, Bytes frame) {
  SuperpacketCutter cutter;
  std::vector<Bytes> packets;
  if (!cutter.begin(header, frame)) return packets;
  while (const size_t bytes = cutter.next_bytes()) {
    packets.emplace_back(bytes);
    cutter.next(packets.back().data());
  }
  return packets;
}

// Returns the frames of `packet` when TCP itself cuts it into segments of `each` bytes.
std::vector<Bytes> segments_of(Packet packet, size_t each, bool congestion_once = false) {
  std::vector<Bytes> frames;
  const Bytes payload = packet.payload;
  const uint8_t flags = packet.flags;
  for (size_t at = 0; at < payload.size(); at += each) {
    const size_t bytes = std::min(each, payload.size() - at);
    packet.payload.assign(payload.begin() + static_cast<ptrdiff_t>(at),
                          payload.begin() + static_cast<ptrdiff_t>(at + bytes));
    packet.flags = flags;
    if (at + bytes < payload.size()) packet.flags &= static_cast<uint8_t>(~(kFin | kPsh));
    if (at != 0 && congestion_once) packet.flags &= static_cast<uint8_t>(~kCwr);
    frames.push_back(frame_of(packet));
    ++packet.id;
    packet.seq += static_cast<uint32_t>(bytes);
  }
  return frames;
}

// Joins frames into one superpacket. Returns the number of frames that it takes.
size_t join(const std::vector<Bytes>& frames, Bytes& joined, VnetHeader& header) {
  SuperpacketJoiner joiner;
  if (frames.empty() || !joiner.begin(frames[0])) return 0;
  size_t count = 1;
  while (count < frames.size() && joiner.add(frames[count])) ++count;
  joiner.finish();
  header = joiner.header();
  joined.assign(joiner.front().begin(), joiner.front().end());
  for (const auto part : joiner.payload()) joined.insert(joined.end(), part.begin(), part.end());
  return count;
}

size_t joined_of(const std::vector<Bytes>& frames) {
  Bytes joined;
  VnetHeader header;
  return join(frames, joined, header);
}

TEST(SuperpacketCutter, MakesTheSegmentsThatTcpWouldHaveMade) {
  struct Row {
    size_t payload, each;
    uint32_t seq;
    uint8_t flags;
  };
  for (const Row& row : {Row{1448 * 44, 1448, 1000, kAck}, Row{1448 * 3 + 1, 1448, 0xfffff000, kAck | kPsh},
                         Row{777, 100, 5, kAck | kPsh | kFin}, Row{1448, 1448, 1, kAck}, Row{999, 333, 0, kAck | kEce},
                         Row{10, 1, 0xfffffffe, kAck | kPsh}, Row{100, 1448, 9, kAck}}) {
    Packet packet = packet_with(row.payload);
    packet.seq = row.seq;
    packet.flags = row.flags;
    packet.id = 0xfff0;
    Bytes frame = frame_of(packet);
    const VnetHeader header = unfinished(frame, row.each);
    EXPECT_EQ(cut(header, frame), segments_of(packet, row.each)) << row.payload;
  }
}

TEST(SuperpacketCutter, TellsOfCongestionOnceOrWithEachSegment) {
  Packet packet = packet_with(3000);
  packet.flags = kAck | kCwr | kEce;
  Bytes frame = frame_of(packet);
  VnetHeader header = unfinished(frame, 1000);
  EXPECT_EQ(cut(header, frame), segments_of(packet, 1000));
  header.kind |= VnetHeader::kCongestionOnce;
  EXPECT_EQ(cut(header, frame), segments_of(packet, 1000, true));
}

TEST(SuperpacketCutter, LeavesTagsAndIpOptions) {
  Packet packet = packet_with(2500);
  packet.vlan = 7;
  Bytes tagged = frame_of(packet);
  const VnetHeader header = unfinished(tagged, 1000, kL4 + 4);
  EXPECT_EQ(cut(header, tagged), segments_of(packet, 1000));
  packet.vlan.reset();
  packet.ip_options = {1, 1, 1, 0};
  Bytes with_options = frame_of(packet);
  const VnetHeader behind = unfinished(with_options, 1000, kL4 + 4, 4);
  EXPECT_EQ(cut(behind, with_options), segments_of(packet, 1000));
}

// If packets are routed by way of other hosts, the checksum covers another destination than the one in the IP header.
TEST(SuperpacketCutter, KnowsTheAddressesFromTheKernelsSum) {
  Bytes frame = frame_of(packet_with(2500));
  const VnetHeader header = unfinished(frame, 1000);
  const std::vector<Bytes> right = cut(header, frame);
  frame[kL4 - 1] ^= 0x55;
  const std::vector<Bytes> routed = cut(header, frame);
  ASSERT_EQ(routed.size(), right.size());
  for (size_t i = 0; i < right.size(); ++i) {
    EXPECT_TRUE(std::equal(right[i].begin() + kL4, right[i].end(), routed[i].begin() + kL4, routed[i].end())) << i;
  }
}

TEST(SuperpacketCutter, GivesSctpItsOwnChecksum) {
  Packet packet = packet_with(500);
  packet.protocol = 132;
  Bytes frame = frame_of(packet);
  put16(frame, kL4 + 8, 0);
  put16(frame, kL4 + 10, 0);
  uint32_t crc = 0xffffffff;  // RFC 9260, appendix A
  for (size_t at = kL4; at < frame.size(); ++at) {
    crc ^= frame[at];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  Bytes right = frame;
  for (size_t i = 0; i < 4; ++i) right[kL4 + 8 + i] = static_cast<uint8_t>(~crc >> 8 * i);
  put16(frame, kL4 + 8, 0x1234);
  const VnetHeader header = {
      .flags = VnetHeader::kNeedsChecksum, .checksum_start = static_cast<uint16_t>(kL4), .checksum_field = 8};
  EXPECT_EQ(cut(header, frame), std::vector<Bytes>{right});
}

TEST(SuperpacketCutter, OnePacketIsAsItIsWithItsChecksumFinished) {
  for (const size_t bytes : {0U, 1U, 5U, 1448U}) {
    const Packet packet = packet_with(bytes);
    const Bytes right = frame_of(packet);
    EXPECT_EQ(cut({}, right), std::vector<Bytes>{right});
    Bytes frame = right;
    const VnetHeader header = unfinished(frame, 0);
    EXPECT_EQ(cut(header, frame), std::vector<Bytes>{right}) << bytes;
  }
  EXPECT_EQ(cut({}, {1, 2, 3}), (std::vector<Bytes>{{1, 2, 3}}));
}

TEST(SuperpacketCutter, RefusesWhatDoesNotGoTogether) {
  Bytes frame = frame_of(packet_with(3000));
  const VnetHeader right = unfinished(frame, 1000);
  ASSERT_EQ(cut(right, frame).size(), 3u);
  VnetHeader header = right;
  for (const unsigned kind : {2U, 3U, 4U, 5U, 0x7fU}) {  // none, UFO, IPv6, UDP
    header.kind = static_cast<uint8_t>(kind);
    EXPECT_TRUE(cut(header, frame).empty()) << kind;
  }
  header = right;
  header.segment_bytes = 0;
  EXPECT_TRUE(cut(header, frame).empty());
  header.segment_bytes = 65535;
  EXPECT_TRUE(cut(header, frame).empty());
  header = right;
  header.kind = VnetHeader::kOnePacket;
  header.checksum_start = 65535;
  EXPECT_TRUE(cut(header, frame).empty());
  for (size_t bytes = 0; bytes <= 66; ++bytes) {
    EXPECT_TRUE(cut(right, Bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(bytes))).empty()) << bytes;
  }
  Packet packet = packet_with(3000);
  packet.fragment = 0x2000;
  EXPECT_TRUE(cut(right, frame_of(packet)).empty());
  packet.fragment = 0;
  packet.protocol = 17;
  EXPECT_TRUE(cut(right, frame_of(packet)).empty());
}

TEST(SuperpacketJoiner, MakesOfSegmentsWhatTheyWereCutOf) {
  struct Row {
    size_t payload, each, takes;
    uint32_t seq;
    uint8_t flags;
  };
  for (const Row& row : {Row{1448 * 44, 1448, 44, 0xffffff00, kAck}, Row{1448 * 2 + 1, 1448, 3, 7, kAck | kPsh},
                         Row{1999, 1000, 2, 0, kAck | kEce}, Row{64 * 9, 9, 64, 1, kAck}}) {
    Packet packet = packet_with(row.payload);
    packet.seq = row.seq;
    packet.flags = row.flags;
    Bytes want = frame_of(packet);
    const VnetHeader wanted = unfinished(want, row.each);
    Bytes joined;
    VnetHeader header;
    const std::vector<Bytes> frames = segments_of(packet, row.each);
    ASSERT_EQ(join(frames, joined, header), row.takes);
    EXPECT_EQ(joined, want) << row.payload;
    EXPECT_EQ(std::memcmp(&header, &wanted, sizeof(header)), 0) << row.payload;
    EXPECT_EQ(cut(header, joined), frames);
  }
}

TEST(SuperpacketJoiner, TakesNoMoreThanFits) {
  EXPECT_EQ(joined_of(segments_of(packet_with(60000), 100)), SuperpacketJoiner::kMostPackets);
  Packet longer = packet_with(60000);
  std::vector<Bytes> frames = segments_of(longer, 6000);
  longer.seq += 60000;
  for (const Bytes& frame : segments_of(longer, 6000)) frames.push_back(frame);
  EXPECT_EQ(joined_of(frames), 10u);  // an 11th frame would make 66,000 bytes, too many for the IP length
}

TEST(SuperpacketJoiner, AShortOneOrAPushIsTheLast) {
  Packet packet = packet_with(2500);
  std::vector<Bytes> frames = segments_of(packet, 1000);
  packet.seq += 2500;
  frames.push_back(frame_of(packet));
  EXPECT_EQ(joined_of(frames), 3u);
  packet = packet_with(1000);
  packet.flags = kAck | kPsh;
  frames = segments_of(packet, 500);
  packet.seq += 1000;
  frames.push_back(segments_of(packet, 500).front());
  EXPECT_EQ(joined_of(frames), 2u);
  // A segment that is longer than the first one does not join it, either.
  packet = packet_with(500);
  frames = {frame_of(packet)};
  packet.seq += 500;
  packet.payload = numbered(501);
  frames.push_back(frame_of(packet));
  EXPECT_EQ(joined_of(frames), 1u);
}

// Expects that the second segment does not join the first one after `change`.
template <class Change>
void stays_apart(const char* what, Change change) {
  Packet packet = packet_with(1000);
  const Bytes first = frame_of(packet);
  packet.seq += 1000;
  ++packet.id;
  ASSERT_EQ(joined_of({first, frame_of(packet)}), 2u) << what;
  change(packet);
  EXPECT_EQ(joined_of({first, frame_of(packet)}), 1u) << what;
}

TEST(SuperpacketJoiner, WhatDiffersStaysApart) {
  stays_apart("a gap", [](Packet& it) { ++it.seq; });
  stays_apart("an overlap", [](Packet& it) { --it.seq; });
  stays_apart("acknowledgement", [](Packet& it) { ++it.ack; });
  stays_apart("window", [](Packet& it) { ++it.window; });
  stays_apart("time stamp", [](Packet& it) { it.tcp_options = timestamps(78, 88); });
  stays_apart("no options", [](Packet& it) { it.tcp_options.clear(); });
  stays_apart("ToS", [](Packet& it) { it.tos = 0; });
  stays_apart("ECN", [](Packet& it) { it.tos |= 3; });
  stays_apart("TTL", [](Packet& it) { --it.ttl; });
  stays_apart("don't fragment", [](Packet& it) { it.fragment = 0; });
  stays_apart("fragment", [](Packet& it) { it.fragment = 0x2000; });
  stays_apart("reserved bit", [](Packet& it) { it.fragment |= 0x8000; });
  stays_apart("IP options", [](Packet& it) { it.ip_options = {1, 1, 1, 0}; });
  stays_apart("source", [](Packet& it) { ++it.source_ip; });
  stays_apart("destination", [](Packet& it) { ++it.destination_ip; });
  stays_apart("source port", [](Packet& it) { ++it.source_port; });
  stays_apart("destination port", [](Packet& it) { ++it.destination_port; });
  stays_apart("MAC address", [](Packet& it) { ++it.from[5]; });
  stays_apart("tag", [](Packet& it) { it.vlan = 1; });
  stays_apart("protocol", [](Packet& it) { it.protocol = 17; });
  stays_apart("no payload", [](Packet& it) { it.payload.clear(); });
  for (const unsigned flag : {1U, 2U, 4U, 0x20U, 0x40U, 0x80U}) {
    stays_apart("flags", [flag](Packet& it) { it.flags = static_cast<uint8_t>(it.flags | flag); });
  }
}

TEST(SuperpacketJoiner, IdentificationCountsWhereItIsOfUse) {
  Packet packet = packet_with(1000);
  const Bytes first = frame_of(packet);
  packet.seq += 1000;
  packet.id += 5;
  EXPECT_EQ(joined_of({first, frame_of(packet)}), 2u);
  packet = packet_with(1000);
  packet.fragment = 0;
  const Bytes may_be_cut = frame_of(packet);
  packet.seq += 1000;
  ++packet.id;
  EXPECT_EQ(joined_of({may_be_cut, frame_of(packet)}), 2u);
  ++packet.id;
  EXPECT_EQ(joined_of({may_be_cut, frame_of(packet)}), 1u);
}

TEST(SuperpacketJoiner, OnlyWhatIsRightIsJoined) {
  std::vector<Bytes> frames = segments_of(packet_with(4000), 1000);
  for (const size_t at : {size_t{24}, kL4 + 16, size_t{500}}) {  // checksum of IP, of TCP, payload
    for (size_t i = 0; i < frames.size(); ++i) {
      std::vector<Bytes> damaged = frames;
      damaged[i][at] ^= 1;
      EXPECT_EQ(joined_of(damaged), std::max<size_t>(i, 1)) << at;
    }
  }
  frames[1].push_back(0);  // a byte after the IP packet
  EXPECT_EQ(joined_of(frames), 1u);
  SuperpacketJoiner joiner;
  for (const uint8_t flags : {kSyn, kFin, kCwr}) {
    Packet packet = packet_with(1000);
    packet.flags = static_cast<uint8_t>(kAck | flags);
    EXPECT_FALSE(joiner.begin(frame_of(packet)));
  }
  for (const Bytes& frame : {Bytes{}, Bytes(13), Bytes(60), frame_of(packet_with(0))})
    EXPECT_FALSE(joiner.begin(frame));
}

// ---- IPv6, whose frames are made only here

Bytes ipv6_of(const Packet& packet) {
  const Bytes v4 = frame_of(packet);
  Bytes frame(v4.begin(), v4.begin() + 12);
  const size_t tcp_bytes = v4.size() - kL4;
  frame.resize(54);
  put16(frame, 12, 0x86dd);
  frame[14] = 0x60;
  put16(frame, 18, static_cast<unsigned>(tcp_bytes));
  frame[20] = 6;
  frame[21] = 64;
  for (size_t i = 22; i < 54; ++i) frame[i] = static_cast<uint8_t>(i);
  frame.insert(frame.end(), v4.begin() + kL4, v4.end());
  put16(frame, 54 + 16, 0);
  uint32_t sum = 6 + static_cast<uint32_t>(tcp_bytes);
  for (size_t at = 22; at < frame.size(); ++at) sum += at % 2 == 0 ? uint32_t{frame[at]} << 8 : frame[at];
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  put16(frame, 54 + 16, ~sum & 0xffff);
  return frame;
}

TEST(Superpacket, OfIpv6IsCutAndMadeAlike) {
  Packet packet = packet_with(1000);
  std::vector<Bytes> frames;
  for (size_t i = 0; i < 5; ++i) {
    packet.payload = numbered(i == 4 ? 333 : 1000, i);
    frames.push_back(ipv6_of(packet));
    packet.seq += 1000;
  }
  Bytes joined;
  VnetHeader header;
  ASSERT_EQ(join(frames, joined, header), 5u);
  EXPECT_EQ(header.kind, VnetHeader::kTcpIpv6);
  EXPECT_EQ(joined.size(), 54 + 32 + 4333u);
  EXPECT_EQ(cut(header, joined), frames);
  frames[2][21] = 63;
  EXPECT_EQ(joined_of(frames), 2u);
}

}  // namespace
}  // namespace gradlane::test::superpacket_test
