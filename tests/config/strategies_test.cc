// strategies_test.cc - tests of the key `strategies`, and of the nodes that strategies link
#include "config/strategies.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/loader.h"

namespace gradlane::test::strategies_test {
namespace {

std::string fault_of(std::string_view text) {
  try {
    (void)parse_config(text, "n.yaml");
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

// Lines 1 to 3 of a file. The text of a row begins in line 4.
constexpr const char* kNodes =
    "rank: 1\nnodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}, {rank: 2, ip: 10.0.0.3}]\n";
constexpr const char* kPorts = "ports: [{device: net_tap0}]\n";

struct Row {
  const char* text;
  const char* fault;
};

void check(const std::string& before, std::initializer_list<Row> rows) {
  for (const Row& row : rows) EXPECT_EQ(fault_of(before + row.text), "n.yaml:" + std::string(row.fault)) << row.text;
}

TEST(Strategies, AreNamedRightly) {
  const std::string ports = std::string(kNodes) + kPorts;
  check(ports,
        {{"strategies: direct",
          "4:13: strategies: 'direct' where a list should be, allowed: [...] of names of strategies"},
         {"strategies: []", "4:13: strategies: 0 strategies, allowed: 1 to 5"},
         {"strategies: [aggregator:0, stream, rings:3, aggregator:0,\n  ring, direct, \"aggregator:2,stream\"]",
          "4:13: strategies: 6 strategies, allowed: 1 to 5"},
         {"strategies: [ring, cube]",
          "4:20: strategies[1]: strategy is 'cube', allowed: ring, direct, rings:G, aggregator:R[,stream]"},
         {"strategies: [stream]",
          "4:14: strategies[0]: strategy is 'stream', allowed: ring, direct, rings:G, aggregator:R[,stream]"},
         {"strategies: [aggregator:0, stream, stream]",
          "4:36: strategies[2]: strategy is 'stream', allowed: ring, direct, rings:G, aggregator:R[,stream]"},
         {"strategies: [ring, [direct]]", "4:20: strategies[1]: a list where a text should be, allowed: 1 to 31 bytes"},
         {"strategies: [direct, ring, direct]",
          "4:28: strategies[2]: direct is already strategies[0], allowed: different ones"},
         {"strategies: [ring, rings:2]", "4:20: strategies[1]: rings:2: 2 does not divide 3 ranks"},
         {"strategies: [ring, aggregator:3]", "4:20: strategies[1]: aggregator:3: there is no rank 3 of 3 ranks"}});
  // Ranks are trainers, or nodes if their trainers reduce locally.
  EXPECT_EQ(fault_of(ports + "trainers: 2\nstrategies: [rings:2]"), "");
  EXPECT_EQ(fault_of(ports + "trainers: 2\nlocal_reduce: true\nstrategies: [rings:2]"),
            "n.yaml:6:14: strategies[0]: rings:2: 2 does not divide 3 ranks");
}

// Node 1 is one of four nodes in a ring. It needs links to nodes 0 and 2, and for some strategies to node 3.
TEST(Strategies, NeedPorts) {
  const std::string nodes =
      "rank: 1\nnodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}, {rank: 2, ip: 10.0.0.3}, {rank: 3, ip: "
      "10.0.0.4}]\n";
  const std::string two = "ports: [{device: net_tap0, nodes: [0, 2]}]\n";
  EXPECT_EQ(fault_of(nodes + two), "");
  EXPECT_EQ(fault_of(nodes + two + "strategies: [ring, rings:2, aggregator:0, aggregator:1]\n"),
            "n.yaml:3:8: ports: no port reaches node 3, allowed: one for each node that strategy rings:2 needs");
  EXPECT_EQ(fault_of(nodes + two + "strategies: [ring, aggregator:0, aggregator:1]\n"),
            "n.yaml:3:8: ports: no port reaches node 3, allowed: one for each node that strategy aggregator:1 needs");
  EXPECT_EQ(fault_of(nodes + two + "strategies: [ring, aggregator:0]\n"), "");
  EXPECT_EQ(fault_of(nodes + "ports: [{device: net_tap0, nodes: [3, 2]}]\nstrategies: [direct]\n"),
            "n.yaml:3:8: ports: no port reaches node 0, allowed: one for each neighbour in the ring");
  EXPECT_EQ(fault_of(nodes + "ports: [{device: net_tap0}]\nstrategies: [direct]\n"), "");
}

using Nodes = std::vector<unsigned>;

Nodes linked(unsigned nodes, unsigned trainers, unsigned rank, const char* strategies) {
  NodeConfig config;
  config.rank = rank;
  config.trainers = trainers;
  for (unsigned i = 0; i < nodes; ++i) config.nodes.push_back({.rank = i, .ip = 0x0a000001 + i, .mac = {}});
  config.strategies = find_strategies(strategies);
  return linked_nodes(config);
}

TEST(Strategies, LinkNodes) {
  EXPECT_EQ(linked(1, 1, 0, "direct"), Nodes{});
  EXPECT_EQ(linked(2, 1, 0, "ring,direct"), Nodes{1});
  EXPECT_EQ(linked(5, 1, 0, "ring"), (Nodes{4, 1}));
  EXPECT_EQ(linked(5, 1, 2, "ring"), (Nodes{1, 3}));
  EXPECT_EQ(linked(5, 1, 2, "ring,direct"), (Nodes{1, 3, 0, 4}));
  EXPECT_EQ(linked(6, 1, 4, "aggregator:1"), (Nodes{3, 5, 1}));
  EXPECT_EQ(linked(6, 1, 1, "aggregator:1"), (Nodes{0, 2, 3, 4, 5}));
  // The groups are 0 1 2 | 3 4 5 | 6 7 8.
  EXPECT_EQ(linked(9, 1, 3, "rings:3"), (Nodes{2, 4, 0, 5, 6}));
}

// Ranks 0 and 1, 2 and 3, 4 and 5, 6 and 7 share a node. With rings:2 a group is one node, so that only neighbouring
// nodes are linked.
TEST(Strategies, LinkNodesOfSeveralRanks) {
  EXPECT_EQ(linked(4, 2, 1, "ring"), (Nodes{0, 2}));
  EXPECT_EQ(linked(4, 2, 1, "rings:2"), (Nodes{0, 2}));
  EXPECT_EQ(linked(4, 2, 1, "rings:4"), (Nodes{0, 2, 3}));
  EXPECT_EQ(linked(4, 2, 1, "aggregator:7"), (Nodes{0, 2, 3}));
  EXPECT_EQ(linked(4, 2, 1, "direct"), (Nodes{0, 2, 3}));
}

}  // namespace
}  // namespace gradlane::test::strategies_test
