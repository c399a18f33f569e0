// port_kinds_test.cc - buffer sizes for packets that the drivers of cards need
#include "dataplane/device/port_kinds.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/error.h"

namespace gradlane::test::port_kinds_test {
namespace {

bool all(const PortConfig&) { return true; }
bool none(const PortConfig&) { return false; }

// The buffers of Intel's older cards must have a size that is a power of two. A buffer also has 14 bytes before a
// packet, and 12 bytes for tags and checksum.
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

// Another port with an e1000e makes the buffers of all ports of a node that large.
TEST(PortKinds, Vmxnet3HasNoBuffersOf16KiB) {
  check_room("net_vmxnet3", 10240);
  check_room("net_e1000_em", 16384);
  try {
    check_room("net_vmxnet3", 16384);
    FAIL() << "taken";
  } catch (const SetupError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("at most 16383 bytes, but other ports need 16384"), std::string::npos) << text;
    EXPECT_NE(text.find("set mtu to 8166 at most"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace gradlane::test::port_kinds_test
