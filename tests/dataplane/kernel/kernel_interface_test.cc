// kernel_interface_test.cc - checks of the kernel's interfaces, and NUMA nodes of CPUs
#include "dataplane/kernel/kernel_interface.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"

namespace gradlane::test::kernel_interface_test {
namespace {

std::string refusal(const std::string& device, size_t mtu, PortConfig::Kind kind = PortConfig::Kind::kDevice) {
  PortConfig port;
  port.kind = kind;
  port.device = device;
  try {
    (void)check_kernel_interface(port, mtu);
  } catch (const SetupError& error) {
    return error.what();
  }
  return "";
}

// Every machine has the loopback interface. Its MTU is 65536.
TEST(KernelInterface, MustBeThereAndTakeTheMtu) {
  if (if_nametoindex("lo") == 0) GTEST_SKIP() << "no interface lo";
  EXPECT_EQ(refusal("net_af_packet0,iface=lo", 9000), "");
  EXPECT_EQ(refusal("eth_af_packet0,iface=lo", 70000),
            "interface lo has MTU 65536, but mtu is 70000: ip link set lo mtu 70000");
  EXPECT_NE(refusal("net_af_packet0,iface=gl-none", 1500).find("there is no interface 'gl-none' here"),
            std::string::npos);
  EXPECT_NE(refusal("net_af_packet0,iface=" + std::string(40, 'x'), 1500).find("there is no interface"),
            std::string::npos);
  // The kernel has an address on lo, which would receive nothing any more.
  EXPECT_TRUE(
      refusal("net_af_xdp0,iface=lo", 3500).starts_with("AF_XDP takes all packets away from the kernel, whose"));
  EXPECT_NE(refusal("net_af_xdp0,iface=lo", 3501).find("AF_XDP cannot receive packets of 3501 bytes"),
            std::string::npos);
}

TEST(KernelInterface, IsOfNoOtherDevice) {
  EXPECT_EQ(refusal("net_tap0,iface=gl-none", 9000), "");
  EXPECT_EQ(refusal("net_af_packet0", 9000, PortConfig::Kind::kRing), "");
}

TEST(KernelInterface, RunsIfItHasALink) {
  EXPECT_FALSE(interface_running(0));
  EXPECT_FALSE(interface_running(0x7fffffff));
}

TEST(Numa, NodeOfACpu) {
  const std::string root = testing::TempDir() + "gradlane-numa-" + std::to_string(getpid());
  for (const char* const cpu : {"node0/cpu0", "node0/cpu2", "node1/cpu1", "node1/cpu12"}) {
    std::filesystem::create_directories(root + "/node/" + cpu);
  }
  EXPECT_EQ(numa_node_of(0, root), 0);
  EXPECT_EQ(numa_node_of(1, root), 1);
  EXPECT_EQ(numa_node_of(2, root), 0);
  EXPECT_EQ(numa_node_of(12, root), 1);
  EXPECT_EQ(numa_node_of(3, root), -1);
  std::filesystem::remove_all(root);
  EXPECT_EQ(numa_node_of(0, root), -1);
}

}  // namespace
}  // namespace gradlane::test::kernel_interface_test
