// drivers_test.cc - cards and devices, and DPDK's drivers for them
#include "dataplane/device/drivers.h"

#include <gtest/gtest.h>

namespace gradlane::test::drivers_test {
namespace {

TEST(Drivers, MayBeOld) {
  EXPECT_TRUE(may_be_e1000("8086:10d3"));
  EXPECT_TRUE(may_be_e1000("8086:ffff"));  // a later DPDK may know this card
  EXPECT_FALSE(may_be_e1000("8086:1592"));
  EXPECT_FALSE(may_be_e1000("1af4:1041"));
  EXPECT_FALSE(may_be_e1000(""));
}

TEST(Drivers, OfCards) {
  EXPECT_EQ(driver_of_card("8086:100e"), "net_e1000");
  EXPECT_EQ(driver_of_card("8086:10d3"), "net_e1000");
  EXPECT_EQ(driver_of_card("8086:10c9"), "net_e1000");  // igb
  EXPECT_EQ(driver_of_card("8086:10fb"), "net_ixgbe");
  EXPECT_EQ(driver_of_card("8086:1572"), "net_i40e");
  EXPECT_EQ(driver_of_card("8086:1889"), "net_iavf");
  EXPECT_EQ(driver_of_card("8086:1592"), "net_ice");
  EXPECT_EQ(driver_of_card("8086:15f2"), "net_igc");
  EXPECT_EQ(driver_of_card("1af4:1041"), "net_virtio");
  EXPECT_EQ(driver_of_card("15ad:07b0"), "net_vmxnet3");
  EXPECT_EQ(driver_of_card("15b3:1017"), "net_mlx5");
  EXPECT_EQ(driver_of_card("15b3:1007"), "net_mlx4");
  EXPECT_EQ(driver_of_card("8088:0100"), "net_ngbe");
  EXPECT_EQ(driver_of_card("8088:1001"), "net_txgbe");
  EXPECT_EQ(driver_of_card("8086:10ca"), "net_e1000");  // a virtual function of igb
  EXPECT_EQ(driver_of_card("8086:12d2"), "");           // Intel's, and newer than the list
  EXPECT_EQ(driver_of_card("1234:5678"), "");
  EXPECT_EQ(driver_of_card(""), "");
}

TEST(Drivers, OfVirtualDevices) {
  EXPECT_EQ(driver_of_device("net_memif0,role=client"), "net_memif");
  EXPECT_EQ(driver_of_device("eth_af_packet0,iface=eth1"), "net_af_packet");
  EXPECT_EQ(driver_of_device("net_virtio_user0,path=/x"), "net_virtio");
  EXPECT_EQ(driver_of_device("net_nobody0"), "");
  EXPECT_EQ(driver_of_device(""), "");
}

// Debian puts a dash between two numbers in a package name.
TEST(Drivers, HavePackages) {
  EXPECT_NE(missing_driver("net_virtio").find("librte_net_virtio.so is not in /"), std::string::npos);
  EXPECT_NE(missing_driver("net_virtio").find("apt install librte-net-virtio2"), std::string::npos);
  EXPECT_NE(missing_driver("net_e1000").find("apt install librte-net-e1000-2"), std::string::npos);
}

}  // namespace
}  // namespace gradlane::test::drivers_test
