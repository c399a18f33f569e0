// port_kinds_test.cc - what drivers want: room for packets of cards
#include "dataplane/device/port_kinds.h"

#include <gtest/gtest.h>

#include <array>

namespace gradlane::test::port_kinds_test {
namespace {

bool all(const PortConfig&) { return true; }
bool none(const PortConfig&) { return false; }

// Intel's older cards count buffers in powers of two: 14 bytes in front of a packet, 12 for tags and checksum.
TEST(PortKinds, SomeCardsHaveRoomInPowersOfTwo) {
  const std::array card{
      PortConfig{.name = "e0", .kind = PortConfig::Kind::kPci, .device = "0000:03:00.0", .nodes = {}, .mac = {}}};
  EXPECT_EQ(longest_packet(card, 1500, all), 2048U - 26);
  EXPECT_EQ(longest_packet(card, 2022, all), 2048U - 26);
  EXPECT_EQ(longest_packet(card, 2023, all), 4096U - 26);
  EXPECT_EQ(longest_packet(card, 3000, all), 4096U - 26);
  EXPECT_EQ(longest_packet(card, 5000, all), 8192U - 26);
  EXPECT_EQ(longest_packet(card, 8167, all), 16384U - 26);
  EXPECT_EQ(longest_packet(card, 9000, all), 16384U - 26);
  EXPECT_EQ(longest_packet(card, 9000, none), 9000U);
}

}  // namespace
}  // namespace gradlane::test::port_kinds_test
