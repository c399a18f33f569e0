// examples_test.cc - tests that the example files load and fit each other; GRADLANE_EXAMPLES_DIR names their folder
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "config/accelerator.h"
#include "config/loader.h"
#include "tests/config/same_config.h"

namespace gradlane::test::examples_test {
namespace {

constexpr const char* kEveryNode = "every-node.yaml";

std::filesystem::path folder() {
  const char* const path = std::getenv("GRADLANE_EXAMPLES_DIR");
  if (path == nullptr) throw std::runtime_error("GRADLANE_EXAMPLES_DIR is not set: it names config/examples");
  return path;
}

NodeConfig example(const char* name) { return std::get<NodeConfig>(load_any_config(folder() / name)); }

template <class Config>
void check_text(const Config& config, const std::string& path) {
  const AnyConfig again = parse_any_config(config_text(config), "");
  ASSERT_TRUE(std::holds_alternative<Config>(again)) << path;
  EXPECT_TRUE(same(std::get<Config>(again), config)) << path;
}

TEST(Examples, AllLoad) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    // One file is for all nodes. It does not say which node this machine is, so the rank is given.
    const std::optional<unsigned> rank = entry.path().filename() == kEveryNode ? std::optional(0U) : std::nullopt;
    std::visit([&](const auto& config) { check_text(config, entry.path()); }, load_any_config(entry.path(), rank));
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  EXPECT_EQ(names,
            (std::vector<std::string>{"accelerator-tap.yaml", "accelerator.yaml", "af_packet.yaml", "af_xdp.yaml",
                                      "every-node.yaml", "memif-0.yaml", "memif-1.yaml", "pci.yaml", "rings-0.yaml",
                                      "rings-1.yaml", "udp.yaml", "vhost-0.yaml", "vhost-1.yaml"}));
}

void check_pair(const NodeConfig& zero, const NodeConfig& one) {
  EXPECT_EQ(rank_table_digest(zero), rank_table_digest(one));
  EXPECT_EQ(zero.mtu, one.mtu);
  EXPECT_EQ(zero.codec.name(), one.codec.name());
  EXPECT_EQ(zero.rank, 0u);
  EXPECT_EQ(one.rank, 1u);
  EXPECT_NE(zero.socket, one.socket);
}

TEST(Examples, OneFileIsForEveryNode) {
  for (unsigned rank = 0; rank < 4; ++rank) {
    const auto config = std::get<NodeConfig>(load_any_config(folder() / kEveryNode, rank));
    EXPECT_EQ(config.rank, rank);
    EXPECT_EQ(config.socket, "/run/gradlane/node" + std::to_string(rank) + ".sock");
  }
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
  EXPECT_EQ(zero.ports.at(0).device, "net_virtio_user0,path" + socket + "server=1,queues=1");
  EXPECT_EQ(one.ports.at(0).device, "net_vhost0,iface" + socket + "client=1,queues=1");
}

TEST(Examples, AcceleratorsUnderstandEachOther) {
  const auto veth = std::get<AcceleratorConfig>(load_any_config(folder() / "accelerator.yaml"));
  const auto tap = std::get<AcceleratorConfig>(load_any_config(folder() / "accelerator-tap.yaml"));
  EXPECT_EQ(veth.mtu, tap.mtu);
  EXPECT_EQ(veth.tos_compressed, tap.tos_compressed);
  EXPECT_EQ(veth.tos_wire, tap.tos_wire);
  EXPECT_EQ(veth.udp_port, tap.udp_port);
  EXPECT_EQ(veth.host.device, "net_af_packet0,iface=gla0,qdisc_bypass=0,framecnt=4096");
  EXPECT_EQ(tap.host.device, "net_tap0,iface=gl0");
  EXPECT_FALSE(veth.faults.any() || tap.faults.any());
}

}  // namespace
}  // namespace gradlane::test::examples_test
