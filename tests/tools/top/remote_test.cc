// remote_test.cc - the addresses at which remote nodes are asked, and documents that are not part of the ring
#include "tools/top/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gradlane::test::top_remote_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Returns the document of node 1 of three, on sockets.
json document(const json& metrics) {
  json table = json::array();
  for (unsigned i = 0; i < 3; ++i) {
    const std::string ip = "10.77.0." + std::to_string(i + 1);
    table.push_back({{"node", i}, {"address", ip}, {"reach", ip}});
  }
  return {{"node", 1}, {"nodes", 3}, {"config_digest", "0x1"}, {"metrics", metrics}, {"table", table}};
}

TEST(Remote, AllButItselfAreAsked) {
  for (const char* const metrics : {"0.0.0.0:9401", "[::]:9401", "10.77.0.2:9401"}) {
    const std::vector<RemoteNode> nodes = remote_nodes(document(metrics));
    ASSERT_EQ(nodes.size(), 2U);
    EXPECT_EQ(nodes[0].node, 0U);
    EXPECT_EQ(nodes[1].node, 2U);
    EXPECT_EQ(nodes[1].reach, "10.77.0.3");
    EXPECT_EQ(nodes[1].port, 9401);
    EXPECT_EQ(nodes[1].why, "");
  }
}

TEST(Remote, WhatToSetWhereTheyCannotBe) {
  EXPECT_EQ(remote_nodes(document(nullptr))[0].why, "set `metrics: node:9400` on all nodes");
  EXPECT_EQ(remote_nodes(document("127.0.0.1:9401"))[0].why,
            "`metrics: 127.0.0.1:9401` answers only on its own machine: set `metrics: node:9401`");
  EXPECT_EQ(remote_nodes(document("[::1]:9401"))[1].why,
            "`metrics: [::1]:9401` answers only on its own machine: set `metrics: node:9401`");
  json own = document(nullptr);  // gradlane's own addresses, which the kernel does not have
  for (json& it : own["table"]) it["reach"] = nullptr;
  EXPECT_EQ(remote_nodes(own)[0].why, "set `metrics: 0.0.0.0:9400` on all nodes");
  own["metrics"] = "0.0.0.0:9400";
  EXPECT_THAT(remote_nodes(own)[0].why, HasSubstr("no `host`"));
  own["table"][0]["reach"] = "node-a";
  EXPECT_EQ(remote_nodes(own)[0].why, "");
}

TEST(Remote, NodesOfOneMachine) {
  json own = document("127.0.0.1:9400");
  for (json& it : own["table"]) it["reach"] = it["address"] = "127.7.0.1";
  EXPECT_EQ(remote_nodes(own)[0].why, "");
}

TEST(Remote, AnOlderDaemonDoesNotSay) {
  json own = document("0.0.0.0:9400");
  own.erase("table");
  EXPECT_TRUE(remote_nodes(own).empty());
}

TEST(Remote, StrangersAreNotMixedIn) {
  const json own = document(nullptr);
  json other = own;
  other["node"] = 2;
  EXPECT_EQ(stranger_text(other, own, 2), "");
  EXPECT_EQ(stranger_text(other, own, 0), "node 2 answers there");
  other["config_digest"] = "0x2";
  EXPECT_THAT(stranger_text(other, own, 2), HasSubstr("its config_digest differs"));
  other = own;
  other["nodes"] = 4;
  EXPECT_THAT(stranger_text(other, own, 2), HasSubstr("of another ring"));
  other = own;
  for (const json& node : {json("2"), json(nullptr), json(-1), json(2.5), json::array()}) {
    other["node"] = node;
    EXPECT_EQ(stranger_text(other, own, 2), "the program there is not a node") << node;
  }
  EXPECT_THAT(stranger_text(json::object(), own, 2), HasSubstr("of another ring"));
}

}  // namespace
}  // namespace gradlane::test::top_remote_test
