// daemon_facts_test.cc - the facts that a calibration takes from the document of `gradlane stats`
#include "tools/calibrate/daemon_facts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gradlane::test::daemon_facts_test {
namespace {

using nlohmann::json;

json document() {
  return {{"node", 1},
          {"nodes", 3},
          {"trainers", 2},
          {"lanes", 4},
          {"mtu", 9000},
          {"ports", {{{"driver", nullptr}}}},
          {"table", {{{"node", 0}, {"reach", nullptr}}, {{"node", 1}, {"reach", "node1"}}}},
          {"workers", {{{"busy_us", 2e6}}, {{"busy_us", 1e6}}}}};
}

TEST(DaemonFacts, OfADocument) {
  const DaemonFacts facts = facts_of(document());
  EXPECT_EQ(facts.node, 1U);
  EXPECT_EQ(facts.nodes, 3U);
  EXPECT_EQ(facts.trainers, 2U);
  EXPECT_EQ(facts.mtu, 9000);
  EXPECT_EQ(facts.port, "udp");
  EXPECT_EQ(facts.workers, 2U);  // four lanes on two threads
  EXPECT_EQ(facts.busy, (std::vector<double>{2, 1}));
  EXPECT_EQ(facts.reach, (std::vector<std::string>{"", "node1"}));
  EXPECT_EQ(facts.speed, 0);
}

TEST(DaemonFacts, KindsOfPorts) {
  for (const auto& [driver, kind] : {std::pair{"net_af_packet", "packets"},
                                     {"net_af_xdp", "packets"},
                                     {"net_vhost", "vhost"},
                                     {"net_ring", "ring"},
                                     {"net_ice", "card"}}) {
    json changed = document();
    changed["ports"][0]["driver"] = driver;
    EXPECT_EQ(facts_of(changed).port, kind);
  }
}

TEST(DaemonFacts, SpeedOfCards) {
  json changed = document();
  changed["ports"] = {{{"driver", "net_ice"}, {"speed_mbps", 100000}}, {{"driver", "net_i40e"}, {"speed_mbps", 10000}}};
  EXPECT_DOUBLE_EQ(facts_of(changed).speed, 1.25e9);
  changed["ports"][0]["speed_mbps"] = nullptr;
  EXPECT_EQ(facts_of(changed).speed, 0);
  changed["ports"] = {{{"driver", "net_af_packet"}, {"speed_mbps", 10000}}};
  EXPECT_EQ(facts_of(changed).speed, 0);
}

TEST(DaemonFacts, OfAnotherVersion) {
  EXPECT_EQ(facts_of(json::object()).workers, 1U);
  EXPECT_EQ(facts_of(json(3)).nodes, 0U);
}

}  // namespace
}  // namespace gradlane::test::daemon_facts_test
