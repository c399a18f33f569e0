// pci_device_test.cc - cards and hugepages in made-up trees, and the error for each card that a port cannot use
#include "dataplane/kernel/pci_device.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "dataplane/kernel/hugepages.h"

namespace gradlane::test::pci_card_test {
namespace {

namespace fs = std::filesystem;

const std::string kCard = "0000:03:00.0";

class PciCardTest : public testing::Test {
 protected:
  PciCardTest() : root_(testing::TempDir() + "gradlane-pci-" + std::to_string(getpid())) {
    fs::remove_all(root_);
    folders_ = {root_ + "/sys", root_ + "/dev", root_ + "/proc"};
    fs::create_directories(root_ + "/dev/vfio");
    fs::create_directories(root_ + "/proc/self/fd");
  }
  ~PciCardTest() override { fs::remove_all(root_); }

  std::string folder(const std::string& address) const { return root_ + "/sys/bus/pci/devices/" + address; }
  static void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text << "\n";
  }
  void add_card(const std::string& driver, const std::string& group, const std::string& address = kCard) {
    write(folder(address) + "/vendor", "0x8086");
    write(folder(address) + "/device", "0x10d3");
    if (!driver.empty()) fs::create_symlink("../../../../bus/pci/drivers/" + driver, folder(address) + "/driver");
    if (group.empty()) return;
    const std::string devices = root_ + "/sys/kernel/iommu_groups/" + group + "/devices";
    fs::create_directories(devices + "/" + address);
    fs::create_symlink(fs::path(devices).parent_path(), folder(address) + "/iommu_group");
  }
  void add_group(const std::string& name) const { write(root_ + "/dev/vfio/" + name, ""); }

  // Returns "what; advice"; "" if there is no trouble.
  std::string trouble() const {
    const auto it = problem_with(look_at_card(kCard, folders_), folders_);
    return it ? it->what + "; " + it->advice : "";
  }
  static void expect(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* const part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }

  const std::string root_;
  KernelFolders folders_;
};

TEST_F(PciCardTest, IsThereAtAll) {
  expect(trouble(), {"no such PCI device", "lspci -D"});
  EXPECT_EQ(look_at_card(kCard, folders_).ids, "");
  EXPECT_FALSE(card_there(kCard, folders_));
  add_card("", "7");
  EXPECT_TRUE(card_there(kCard, folders_));
  EXPECT_EQ(look_at_card(kCard, folders_).ids, "8086:10d3");
}

TEST_F(PciCardTest, IsTheKernels) {
  add_card("e1000e", "7");
  expect(trouble(), {"the kernel uses it with driver e1000e; "
                     "as root: gradlane nic setup 0000:03:00.0"});
  fs::create_directories(folder(kCard) + "/net/eth3");
  expect(trouble(), {"driver e1000e, as interface eth3", "your login session needs"});
}

TEST_F(PciCardTest, OfVirtioIsTheKernels) {
  add_card("virtio-pci", "7");
  fs::create_directories(folder(kCard) + "/virtio2/net/ens3");
  expect(trouble(), {"driver virtio-pci, as interface ens3"});
}

TEST_F(PciCardTest, IsNobodys) {
  add_card("", "7");
  expect(trouble(), {"it has no driver; as root: gradlane nic setup "});
  EXPECT_EQ(trouble().find("IOMMU"), std::string::npos);
}

TEST_F(PciCardTest, HasNoIommu) {
  add_card("e1000e", "");
  expect(trouble(), {"driver e1000e, and it is in no IOMMU group", "intel_iommu=on iommu=pt",
                     "; then as root: gradlane nic setup "});
  fs::remove(folder(kCard) + "/driver");
  fs::create_symlink("../drivers/vfio-pci", folder(kCard) + "/driver");
  expect(trouble(), {"it is in no IOMMU group; switch the IOMMU on"});
}

TEST_F(PciCardTest, MayBeHad) {
  add_card("vfio-pci", "7");
  expect(trouble(), {"there is no ", "/dev/vfio/7; is this a container?"});
  add_group("7");
  EXPECT_EQ(trouble(), "");
}

TEST_F(PciCardTest, MayBeHadWithoutIommu) {
  add_card("vfio-pci", "0");
  add_group("noiommu-0");
  EXPECT_EQ(trouble(), "");
}

TEST_F(PciCardTest, HasNoIommuAndVfioDoesWithout) {
  write(root_ + "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N");
  add_card("", "");
  expect(trouble(), {"it is in no IOMMU group"});
  write(root_ + "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
  EXPECT_EQ(trouble(), "it has no driver; as root: gradlane nic setup 0000:03:00.0 --no-iommu");
}

TEST_F(PciCardTest, MayNotBeOpenedWithoutIommu) {
  add_card("vfio-pci", "0");
  add_group("noiommu-0");
  chmod((root_ + "/dev/vfio/noiommu-0").c_str(), 0);
  const bool root = geteuid() == 0 && seteuid(65534) == 0;
  expect(trouble(),
         {"/dev/vfio/noiommu-0 cannot be opened by user ", ": without an IOMMU only root can open it; start as root"});
  EXPECT_EQ(trouble().find("chown"), std::string::npos);
  EXPECT_EQ(root ? seteuid(0) : 0, 0);
}

TEST_F(PciCardTest, OthersDriversTakeItAsItIs) {
  for (const char* const driver : {"uio_pci_generic", "igb_uio", "mlx5_core"}) {
    fs::remove_all(folder(kCard));
    add_card(driver, "");
    EXPECT_EQ(trouble(), "") << driver;
  }
}

TEST_F(PciCardTest, OfAGroupThatTheKernelUsesToo) {
  add_card("vfio-pci", "7");
  add_group("7");
  add_card("pcieport", "7", "0000:00:02.0");
  add_card("", "7", "0000:03:00.2");
  EXPECT_EQ(trouble(), "");
  add_card("e1000e", "7", "0000:03:00.1");
  expect(trouble(), {"IOMMU group 7 also has 0000:03:00.1 (driver e1000e), which",
                     "gradlane nic setup 0000:03:00.0 0000:03:00.1"});
}

TEST_F(PciCardTest, MayNotBeOpened) {
  add_card("vfio-pci", "7");
  add_group("7");
  chmod((root_ + "/dev/vfio/7").c_str(), 0);
  // Root may open all files, so the test becomes another user.
  const bool root = geteuid() == 0 && seteuid(65534) == 0;
  expect(trouble(), {"/dev/vfio/7 cannot be opened by user ", "as root: chown ", "with `user`"});
  EXPECT_EQ(root ? seteuid(0) : 0, 0);
}

TEST_F(PciCardTest, SomebodyElseHasIt) {
  const std::string file = root_ + "/dev/vfio/7";
  EXPECT_EQ(who_has(file, folders_), "");
  write(root_ + "/proc/4711/comm", "gradlaned");
  fs::create_directories(root_ + "/proc/4711/fd");
  fs::create_symlink("/dev/null", root_ + "/proc/4711/fd/0");
  EXPECT_EQ(who_has(file, folders_), "");
  fs::create_symlink(file, root_ + "/proc/4711/fd/12");
  EXPECT_EQ(who_has(file, folders_), "gradlaned, pid 4711");
}

TEST_F(PciCardTest, HugepagesThatAreFree) {
  const HugepageFolders folders{root_ + "/hugepages", root_ + "/node"};
  const auto look = [&folders] { return hugepages_for(-1, 1, folders); };
  EXPECT_EQ(hugepages_text(look(), 1), "0 MiB free, 1 MiB needed");
  write(folders.all + "/hugepages-2048kB/nr_hugepages", "10");
  write(folders.all + "/hugepages-2048kB/free_hugepages", "4");
  write(folders.nodes + "/node0/hugepages/hugepages-2048kB/free_hugepages", "4");
  const Hugepages small = look();
  EXPECT_EQ(small.node, -1);  // there is only one NUMA node
  EXPECT_EQ(hugepages_text(small, size_t{9} << 20), "8 MiB free, 9 MiB needed");
  EXPECT_TRUE(enough(small, size_t{8} << 20));
  EXPECT_FALSE(enough(small, (size_t{8} << 20) + 1));
  // The advice leaves the pages that other processes use.
  expect(hugepages_advice(small, size_t{41} << 20),
         {"gradlane nic setup --hugepages 21 PCI, or ",
          "echo 27 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "memory: {hugepages: false}"});
  write(folders.all + "/hugepages-1048576kB/free_hugepages", "1");
  EXPECT_TRUE(enough(look(), size_t{1} << 30));
}

TEST_F(PciCardTest, NodeOfCards) {
  const std::string root = root_ + "/cards";
  write(root + "/0000:41:00.0/numa_node", "1");
  write(root + "/0000:42:00.0/numa_node", "1");
  write(root + "/0000:4a:00.0/numa_node", "2");
  write(root + "/0000:01:00.0/numa_node", "0");
  write(root + "/0000:02:00.0/numa_node", "-1");
  const auto node = [&](std::vector<std::string> cards) { return node_of_cards(cards, root); };
  EXPECT_EQ(node({}), -1);
  EXPECT_EQ(node({"0000:41:00.0,queues=2", "42:00.0"}), 1);
  EXPECT_EQ(node({"0000:4A:00.0"}), 2);
  EXPECT_EQ(node({"41:00.0", "01:00.0"}), -1);
  EXPECT_EQ(node({"02:00.0"}), -1);
  EXPECT_EQ(node({"03:00.0"}), -1);
}

// All buffers come from one NUMA node. Free pages of several nodes do not add up.
TEST_F(PciCardTest, NodeThatHasHugepages) {
  const HugepageFolders folders{root_ + "/hugepages", root_ + "/node"};
  const size_t need = size_t{8} << 20;
  const auto free_on = [&](const std::string& node, const char* pages) {
    write(folders.nodes + "/node" + node + "/hugepages/hugepages-2048kB/nr_hugepages", "9");
    write(folders.nodes + "/node" + node + "/hugepages/hugepages-2048kB/free_hugepages", pages);
  };
  const auto node = [&](int wanted) { return hugepages_for(wanted, need, folders).node; };
  free_on("0", "4");
  free_on("1", "4");
  EXPECT_EQ(node(1), 1);
  EXPECT_EQ(node(0), 0);
  EXPECT_EQ(node(-1), 0);
  free_on("1", "3");
  EXPECT_EQ(node(1), 0);
  free_on("0", "3");
  const Hugepages none = hugepages_for(1, need, folders);
  EXPECT_FALSE(enough(none, need));
  EXPECT_EQ(hugepages_text(none, need), "6 MiB free on NUMA node 1, 8 MiB needed");
  expect(hugepages_advice(none, need),
         {"echo 10 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages, or memory: "});
  EXPECT_EQ(node(-1), 0);
  free_on("1", "4");
  EXPECT_EQ(node(-1), 1);
  free_on("1", "3");
  free_on("8", "4");  // node numbers may have gaps
  EXPECT_EQ(node(-1), 8);
  EXPECT_EQ(node(8), 8);
}

}  // namespace
}  // namespace gradlane::test::pci_card_test
