// ring_port_test.cc - in-process links, ports on them, pools that run out, and steering on devices without rules
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "dataplane/device/ethdev_port.h"
#include "tests/dataplane/cluster.h"

namespace gradlane::test::ring_port_test {
namespace {

using testing::HasSubstr;
using testing::Not;

NodeConfig two_nodes(unsigned lanes, unsigned threads) {
  NodeConfig config;
  config.nodes = {{.rank = 0, .ip = 0x0a000001, .mac = {}}, {.rank = 1, .ip = 0x0a000002, .mac = {}}};
  config.lanes = lanes;
  config.threads = threads;
  return config;
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const SetupError& error) {
    return error.what();
  }
  return "";
}

// ---- Links

TEST(RingLinks, HaveTwoEnds) {
  start_eal_once();
  RingLinks links;
  const RingLinks::End one = links.attach("a", 2);
  EXPECT_THAT(refusal([&] { links.check_all_have_two_ends(); }), HasSubstr("'a' has only one end"));
  EXPECT_THAT(refusal([&] { (void)links.attach("a", 3); }), HasSubstr("2 lanes on its other end"));
  const RingLinks::End other = links.attach("a", 2);
  EXPECT_EQ(one.rx, other.tx);
  EXPECT_EQ(one.tx, other.rx);
  links.check_all_have_two_ends();
  EXPECT_THAT(refusal([&] { (void)links.attach("a", 2); }), HasSubstr("has two ends already"));
}

// ---- Pools

TEST(PacketPool, RunsOutAndRecovers) {
  start_eal_once();
  Cluster cluster({.nodes = 2, .played = true});
  size_t buffers = 0;
  for (unsigned i = 0; i < 3; ++i) {
    const Hoard all(cluster.node(0));
    EXPECT_EQ(cluster.node(0).pools()[0]->allocate(), nullptr);
    if (i == 0) buffers = all.buffers();
    EXPECT_EQ(all.buffers(), buffers);
  }
}

TEST(PacketPool, SaysWhatNeedsLessMemory) {
  start_eal_once();
  EXPECT_THAT(refusal([] { PacketPool("too_large", size_t{1} << 24, 9000); }), HasSubstr("exchange.window"));
}

// ---- Steering

TEST(Steering, OneWorkerNeedsNone) {
  const NodeConfig config = two_nodes(4, 1);
  Steering steering(config, {}, true);
  steering.apply(0, 4);
  EXPECT_TRUE(steering.allows(1));
  EXPECT_FALSE(steering.allows(2));
  EXPECT_THAT(steering.text(), HasSubstr("nothing to steer"));
}

TEST(Steering, ByConstructionQueuesAreTheOtherSides) {
  const NodeConfig config = two_nodes(4, 4);
  Steering steering(config, {}, true);
  steering.apply(0, 4);
  for (const unsigned workers : {1U, 2U, 3U, 4U}) EXPECT_TRUE(steering.allows(workers));
  steering.apply(0, 2);
  EXPECT_TRUE(steering.allows(2));
  EXPECT_FALSE(steering.allows(4));
  EXPECT_THAT(steering.text(), HasSubstr("2 queues for 4 lanes"));
  steering.apply(0, 1);
  EXPECT_FALSE(steering.allows(2));
  EXPECT_THAT(steering.text(), HasSubstr("one queue, one worker"));
}

// This device has no rules of rte_flow. Its driver decides whether RSS is possible.
TEST(Steering, WithoutRulesTheDevicesHashDecides) {
  start_eal_once();
  NodeConfig config = two_nodes(2, 2);
  PortConfig port;
  port.name = "null";
  port.device = "net_null_steering,no-rx=1";
  PacketPool pool("steering", 4095, 1500);
  const std::vector<rte_mempool*> pools(2, pool.mempool());
  RingLinks links;
  const EthdevPort it(port, config, pools, links, "steering");
  EXPECT_EQ(it.queues(), 2U);
  EXPECT_TRUE(it.started());
  EXPECT_FALSE(it.local_link());
  EXPECT_TRUE(it.steering().allows(1));
  EXPECT_THAT(it.steering().text(), testing::AnyOf(HasSubstr("by RSS"), HasSubstr("neither rte_flow")));
  EXPECT_EQ(it.steering().allows(2), it.steering().text().find("by RSS") != std::string::npos);
}

TEST(Port, IsLostWhenItsDeviceIsTakenOut) {
  start_eal_once();
  const NodeConfig config = two_nodes(1, 1);
  PortConfig port;
  port.name = "e3";
  port.device = "net_null_taken,no-rx=1";
  PacketPool pool("taken", 1023, 1500);
  const std::vector<rte_mempool*> pools(1, pool.mempool());
  RingLinks links;
  EthdevPort it(port, config, pools, links, "taken");
  it.maintain();
  take_out("net_null_steering");
  it.maintain();
  take_out("net_null_taken");
  const auto lost = [&] {
    try {
      it.maintain();
    } catch (const DeviceLost& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(lost(), HasSubstr("port e3: device net_null_taken was removed from the machine"));
  EXPECT_EQ(lost(), lost());
}

TEST(Port, NamesItselfWhereThereIsNoDevice) {
  start_eal_once();
  const NodeConfig config = two_nodes(1, 1);
  PortConfig port;
  port.name = "e7";
  port.device = "net_nobody0";
  PacketPool pool("nobody", 1023, 1500);
  const std::vector<rte_mempool*> pools(1, pool.mempool());
  RingLinks links;
  const auto fault = [&] { return refusal([&] { EthdevPort(port, config, pools, links, "nobody"); }); };
  EXPECT_THAT(fault(), HasSubstr("port e7: DPDK has no device"));
  EXPECT_THAT(fault(), Not(HasSubstr("characters")));
  port.device += ",path=" + std::string(111, 'x');
  EXPECT_THAT(fault(), HasSubstr("(DPDK 24.11 takes at most 127 characters, and these are 128)"));
}

}  // namespace
}  // namespace gradlane::test::ring_port_test
