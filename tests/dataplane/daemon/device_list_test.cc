// device_list_test.cc - devices in DPDK's list before they are made
#include "dataplane/daemon/device_list.h"

#include <gtest/gtest.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_ethdev.h>

#include <string_view>

#include "tests/dataplane/test_eal.h"

namespace gradlane::test::device_list_test {
namespace {

// Returns how many entries DPDK's list has of a device.
int entries(std::string_view name) {
  int found = 0;
  const rte_devargs* entry = nullptr;
  RTE_EAL_DEVARGS_FOREACH("vdev", entry) found += entry->name == name ? 1 : 0;
  return found;
}

bool is_made(const char* name) {
  uint16_t id = 0;
  return rte_eth_dev_get_port_by_name(name, &id) == 0;
}

TEST(DeviceList, ProbingKeepsTheEntry) {
  start_eal_once();
  list_device("net_ring_listed");
  EXPECT_EQ(entries("net_ring_listed"), 1);
  EXPECT_FALSE(is_made("net_ring_listed"));
  EXPECT_EQ(rte_dev_probe("net_ring_listed"), 0);
  EXPECT_EQ(entries("net_ring_listed"), 1);
  EXPECT_TRUE(is_made("net_ring_listed"));
  EXPECT_EQ(rte_eal_hotplug_remove("vdev", "net_ring_listed"), 0);
}

TEST(DeviceList, LeavesOutWhatNoDriverKnows) {
  start_eal_once();
  list_device("no_such_driver0,path=x");
  EXPECT_EQ(entries("no_such_driver0"), 0);
}

}  // namespace
}  // namespace gradlane::test::device_list_test
