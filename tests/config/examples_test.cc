// examples_test.cc - the example files load, and fit each other; GRADLANE_EXAMPLES_DIR says where they are
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "config/loader.h"
#include "tests/config/same_config.h"

namespace gradlane::test {
namespace {

std::filesystem::path folder() {
  const char* const path = std::getenv("GRADLANE_EXAMPLES_DIR");
  return path == nullptr ? "" : path;
}

NodeConfig example(const char* name) { return load_config(folder() / name); }

TEST(Examples, AllLoad) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const NodeConfig config = load_config(entry.path());
    EXPECT_TRUE(same(parse_config(config_text(config), ""), config)) << entry.path();
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  EXPECT_EQ(names,
            (std::vector<std::string>{"af_packet.yaml", "af_xdp.yaml", "memif-0.yaml", "memif-1.yaml", "pci.yaml",
                                      "rings-0.yaml", "rings-1.yaml", "vhost-0.yaml", "vhost-1.yaml"}));
}

void check_pair(const NodeConfig& zero, const NodeConfig& one) {
  EXPECT_EQ(rank_table_digest(zero), rank_table_digest(one));
  EXPECT_EQ(zero.mtu, one.mtu);
  EXPECT_EQ(zero.codec.name(), one.codec.name());
  EXPECT_EQ(zero.rank, 0u);
  EXPECT_EQ(one.rank, 1u);
  EXPECT_NE(zero.socket, one.socket);
}

TEST(Examples, RingsAreTwoEndsOfOneLink) {
  const NodeConfig zero = example("rings-0.yaml");
  const NodeConfig one = example("rings-1.yaml");
  check_pair(zero, one);
  EXPECT_EQ(zero.ports.at(0).kind, PortConfig::Kind::kRing);
  EXPECT_EQ(zero.ports.at(0).device, one.ports.at(0).device);
}

TEST(Examples, MemifsAreServerAndClient) {
  const NodeConfig zero = example("memif-0.yaml");
  const NodeConfig one = example("memif-1.yaml");
  check_pair(zero, one);
  std::string device = zero.ports.at(0).device;
  device.replace(device.find("role=server"), 11, "role=client");
  EXPECT_EQ(device, one.ports.at(0).device);
}

TEST(Examples, VhostAndVirtioMeetAtOneSocket) {
  const NodeConfig zero = example("vhost-0.yaml");
  const NodeConfig one = example("vhost-1.yaml");
  check_pair(zero, one);
  const std::string socket = "=/tmp/gradlane-link01.sock,";
  EXPECT_TRUE(zero.ports.at(0).device.starts_with("net_virtio_user0,path" + socket + "server=1,queues=1,"));
  EXPECT_EQ(one.ports.at(0).device, "net_vhost0,iface" + socket + "client=1,queues=1");
}

}  // namespace
}  // namespace gradlane::test
