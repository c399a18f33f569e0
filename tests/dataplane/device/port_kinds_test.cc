// port_kinds_test.cc - what drivers want: room for packets of cards
#include "dataplane/device/port_kinds.h"

#include <gtest/gtest.h>

#include <array>

namespace gradlane::test::port_kinds_test {

// Intel's older cards count buffers in powers of two: 14 bytes in front of a packet, 12 for tags and checksum.
TEST(PortKinds, CardsHaveRoomForJumboFramesInPowersOfTwo) {
  const std::array card{
      PortConfig{.name = "e0", .kind = PortConfig::Kind::kPci, .device = "0000:03:00.0", .nodes = {}, .mac = {}}};
  EXPECT_EQ(longest_packet(card, 1500, may_want_powers), 1500U);
  EXPECT_EQ(longest_packet(card, 8166, may_want_powers), 8166U);
  EXPECT_EQ(longest_packet(card, 8167, may_want_powers), 16384U - 26);
  EXPECT_EQ(longest_packet(card, 9000, may_want_powers), 16384U - 26);
  const std::array other{
      PortConfig{.name = "e0", .kind = PortConfig::Kind::kDevice, .device = "net_tap0", .nodes = {}, .mac = {}}};
  EXPECT_EQ(longest_packet(other, 9000, may_want_powers), 9000U);
}

}  // namespace gradlane::test::port_kinds_test
