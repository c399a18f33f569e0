// segments_test.cc - headers of segments, reassembly, and reports
#include "dataplane/udp/segments.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradlane::test::segments_test {
namespace {

constexpr SegmentSizes kSizes{.part = 100, .count = 5};
constexpr uint64_t kFrom = 0x7f00000147e047e0;

SegmentHeader segment(uint32_t sequence, uint8_t number, bool last = false) {
  return {.sequence = sequence, .session = 7, .index = number, .last = last};
}

TEST(Segments, HeadersRoundTrip) {
  for (const unsigned number : {0U, 1U, 31U, 63U}) {
    for (const bool last : {false, true}) {
      const SegmentHeader sent{
          .sequence = 0xfedcba98, .session = 0xa5, .index = static_cast<uint8_t>(number), .last = last};
      const SegmentHeader got = unpack_segment(pack(sent));
      EXPECT_TRUE(got.valid);
      EXPECT_TRUE(got.same_packet(sent));
      EXPECT_EQ(got.index, number);
      EXPECT_EQ(got.last, last);
      EXPECT_FALSE(got.report);
    }
  }
  EXPECT_TRUE(unpack_segment(pack({.report = true})).report);
  EXPECT_FALSE(unpack_segment(0x4c47).valid);
  // The bytes of a third segment, the last one, of packet 0x11223344.
  const uint64_t word = pack({.sequence = 0x11223344, .session = 0x99, .index = 2, .last = true});
  const uint8_t expected[] = {0x47, 0x53, 0x42, 0x99, 0x44, 0x33, 0x22, 0x11};
  EXPECT_EQ(word, load<uint64_t>(expected));
}

TEST(Segments, OnlyRealSegmentsAreValid) {
  EXPECT_TRUE(kSizes.is_valid(segment(0, 0), 100));
  EXPECT_FALSE(kSizes.is_valid(segment(0, 0), 99));
  EXPECT_FALSE(kSizes.is_valid(segment(0, 0), 101));
  EXPECT_FALSE(kSizes.is_valid(segment(0, 4), 100));  // the fifth one must be the last
  EXPECT_TRUE(kSizes.is_valid(segment(0, 4, true), 100));
  EXPECT_TRUE(kSizes.is_valid(segment(0, 4, true), 1));
  EXPECT_FALSE(kSizes.is_valid(segment(0, 4, true), 0));
  EXPECT_FALSE(kSizes.is_valid(segment(0, 4, true), 101));
  EXPECT_FALSE(kSizes.is_valid(segment(0, 5, true), 100));
}

class Partial : public testing::Test {
 protected:
  PartialPacket& begin(const SegmentHeader& name, void*& replaced) {
    buffers_.emplace_back(kSizes.packet_bytes());
    return packets.begin(
        {.from = kFrom, .name = name, .buffer = buffers_.back().data(), .data = buffers_.back().data()}, replaced);
  }
  static void add(PartialPacket& packet, const SegmentHeader& it, size_t bytes = kSizes.part) {
    const std::vector<uint8_t> part(bytes, static_cast<uint8_t>(it.index + 1));
    packet.add(it, part, kSizes);
  }

  PartialPackets packets;

 private:
  std::vector<std::vector<uint8_t>> buffers_;
};

// A packet is complete when all of its segments are there, in any order and however often.
TEST_F(Partial, SegmentsInAnyOrder) {
  void* replaced = nullptr;
  PartialPacket& packet = begin(segment(9, 2), replaced);
  EXPECT_EQ(packets.find(kFrom, segment(9, 0)), &packet);
  EXPECT_EQ(packets.find(kFrom + 1, segment(9, 0)), nullptr);
  EXPECT_EQ(packets.find(kFrom, segment(10, 0)), nullptr);
  EXPECT_EQ(packets.find(kFrom, {.sequence = 9, .session = 8}), nullptr);
  add(packet, segment(9, 2));
  add(packet, segment(9, 0));
  add(packet, segment(9, 0));
  EXPECT_FALSE(packet.complete());
  add(packet, segment(9, 3, true), 30);
  EXPECT_FALSE(packet.complete());
  EXPECT_EQ(packet.arrived, 0b1101U);
  add(packet, segment(9, 1));
  ASSERT_TRUE(packet.complete());
  EXPECT_EQ(packet.bytes, 330U);
  for (size_t i = 0; i < packet.bytes; ++i) ASSERT_EQ(packet.data[i], i / 100 + 1) << i;
  packets.end(packet);
  EXPECT_EQ(packets.find(kFrom, segment(9, 0)), nullptr);
}

TEST_F(Partial, EntriesAreLimited) {
  void* replaced = nullptr;
  std::vector<void*> first;
  for (uint32_t i = 0; i < kSegmentEntries; ++i) {
    first.push_back(begin(segment(i, 0), replaced).buffer);
    EXPECT_EQ(replaced, nullptr) << i;
  }
  for (uint32_t i = 0; i < kSegmentEntries; ++i) {
    (void)begin(segment(kSegmentEntries + i, 0), replaced);
    EXPECT_EQ(replaced, first[i]) << i;
    EXPECT_EQ(packets.find(kFrom, segment(i, 0)), nullptr);
  }
}

// When a later packet begins, an earlier one is reported, and again only after another segment of it has arrived.
TEST_F(Partial, IncompletePacketsAreReported) {
  void* replaced = nullptr;
  EXPECT_EQ(packets.unreported_before(kFrom, segment(5, 0)), nullptr);
  PartialPacket& packet = begin(segment(4, 0), replaced);
  add(packet, segment(4, 0));
  EXPECT_EQ(packets.unreported_before(kFrom, segment(4, 0)), nullptr);
  EXPECT_EQ(packets.unreported_before(kFrom + 1, segment(5, 0)), nullptr);
  EXPECT_EQ(packets.unreported_before(kFrom, segment(5, 0)), &packet);
  EXPECT_EQ(packets.unreported_before(kFrom, segment(8, 0)), &packet);
  packet.reported = packet.arrived;
  EXPECT_EQ(packets.unreported_before(kFrom, segment(5, 0)), nullptr);
  add(packet, segment(4, 3));
  EXPECT_EQ(packets.unreported_before(kFrom, segment(5, 0)), &packet);
}

TEST_F(Partial, PacketsAreOverdueAfterOneTwoFourLooks) {
  void* replaced = nullptr;
  unsigned reports = 0;
  const auto look = [&] { return packets.look([&](PartialPacket&) { ++reports; }); };
  EXPECT_FALSE(look());
  PartialPacket& packet = begin(segment(4, 0), replaced);
  add(packet, segment(4, 0));
  for (unsigned time = 0; time < 2; ++time) {
    reports = 0;
    unsigned looks = 0;
    std::vector<unsigned> at;
    for (bool more = true; more; ++looks) {
      const unsigned before = reports;
      more = look();
      if (reports != before) at.push_back(looks);
    }
    EXPECT_EQ(at, (std::vector<unsigned>{1, 2, 4, 8, 16, 32, 64, 128}));
    EXPECT_FALSE(look());
    EXPECT_EQ(reports, at.size());
    add(packet, segment(4, 3));
  }
  packets.end(packet);
  EXPECT_FALSE(look());
}

TEST(Reports, CountForTwoTransmissions) {
  SegmentReports reports;
  const SegmentHeader name = segment(3, 0);
  EXPECT_EQ(reports.take_arrived(kFrom, name), 0U);
  reports.add(kFrom, name, 0b101);
  EXPECT_EQ(reports.take_arrived(kFrom + 1, name), 0U);
  EXPECT_EQ(reports.take_arrived(kFrom, segment(4, 0)), 0U);
  EXPECT_EQ(reports.take_arrived(kFrom, name), 0b101U);
  EXPECT_EQ(reports.take_arrived(kFrom, name), 0b101U);
  EXPECT_EQ(reports.take_arrived(kFrom, name), 0U);
  reports.add(kFrom, name, 0b111);
  EXPECT_EQ(reports.take_arrived(kFrom, name), 0b111U);
}

}  // namespace
}  // namespace gradlane::test::segments_test
