// mesh_test.cc - nodes with more links than those of the ring: all links carry packets, and each failure is named
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "dataplane/node/ring_facts.h"
#include "tests/dataplane/cluster.h"
#include "tests/dataplane/ranks.h"

namespace gradlane::test::mesh_test {
namespace {

using Nodes = std::vector<unsigned>;
constexpr Nanos kPatience = 100 * kMillisecond;

Nodes neighbours(const Node& node) {
  Nodes nodes;
  for (const auto& it : node.neighbours()) nodes.push_back(it->node);
  return nodes;
}

// Returns the nodes that `node` reports as missing. The data of that report may be 100 ms old.
Nodes missing(Cluster& cluster, unsigned node) {
  cluster.node(node).maintain(cluster.now());
  Nodes nodes;
  for (const RingWatch::Seen& seen : cluster.node(node).ring().neighbours()) {
    if (!seen.facts.up) nodes.push_back(seen.facts.node);
  }
  return nodes;
}

// Returns the number of received frames, by node and port.
std::vector<uint64_t> received(Cluster& cluster) {
  std::vector<uint64_t> frames;
  for (const auto& node : cluster.nodes()) {
    for (const NodePort& port : node->ports()) {
      uint64_t& sum = frames.emplace_back();
      for (const auto& queue : port.queues) sum += queue->counters().events[QueueCounter::kReceived];
    }
  }
  return frames;
}

TEST(Mesh, DirectLinksAreBetweenAllAndAllHaveTheirPartOfATensor) {
  for (const unsigned lanes : {1U, 2U}) {
    Cluster cluster({.nodes = 4, .strategies = "direct,ring", .change = [lanes](NodeConfig& it) { it.lanes = lanes; }});
    EXPECT_EQ(neighbours(cluster.node(0)), (Nodes{3, 1, 2}));
    EXPECT_EQ(neighbours(cluster.node(2)), (Nodes{1, 3, 0}));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ready(); }));
    Ranks ranks(cluster);
    const std::vector<uint64_t> before = received(cluster);
    ranks.run(all_reduce(100'000));
    const std::vector<uint64_t> after = received(cluster);
    ASSERT_EQ(after.size(), 12U);
    // Each port receives a quarter of the tensor twice, 25000 elements of 4 bytes each.
    const uint64_t packets = 100'000 / 4 * 4 * 2 / 1500;
    for (size_t i = 0; i < after.size(); ++i) EXPECT_GT(after[i] - before[i], packets) << i;
  }
}

TEST(Mesh, ANodeHasLinksForAllThatItsStrategiesNeed) {
  Cluster cluster({.nodes = 6, .strategies = "ring,rings:3,aggregator:4"});
  EXPECT_EQ(neighbours(cluster.node(0)), (Nodes{5, 1, 2, 3, 4}));
  EXPECT_EQ(neighbours(cluster.node(1)), (Nodes{0, 2, 4}));
  EXPECT_EQ(neighbours(cluster.node(4)), (Nodes{3, 5, 0, 1, 2}));
  EXPECT_TRUE(cluster.run_until([&] { return cluster.ready(); }));
}

TEST(Mesh, TrainersOfANodeHaveLinksToAllOthersHereAndThere) {
  Cluster cluster({.nodes = 3, .strategies = "direct", .change = [](NodeConfig& it) { it.trainers = 3; }});
  ASSERT_TRUE(cluster.run_until([&] { return cluster.ready(); }));
  cluster.node(1).for_each_lane([](const Lane& lane, unsigned) { EXPECT_EQ(lane.links(), 8U); });
  Ranks ranks(cluster);
  ranks.run(all_reduce(1));
  ranks.run(all_reduce(100'000));
}

TEST(Mesh, PacketsWithTagsComeFromAllAndFaultsAreRepaired) {
  std::filesystem::path folder;
  Cluster cluster({.nodes = 4, .strategies = "direct", .change = [&folder](NodeConfig& it) {
                     folder = std::filesystem::path(it.socket).parent_path();
                     it.security = Security::kEncrypted;
                     it.key_file = folder / "key";
                     if (!std::filesystem::exists(it.key_file)) (void)write_key(folder);
                     it.faults.drop = 0.02;
                     it.faults.duplicate = 0.02;
                     it.faults.reorder = 0.02;
                     it.faults.corrupt = 0.02;
                   }});
  Ranks ranks(cluster);
  for (int i = 0; i < 3; ++i) ranks.run(all_reduce(30'000));
  for (unsigned node = 0; node < 4; ++node) EXPECT_GT(cluster.counted(node, "injected_drop"), 0U);
}

// ---- Failures

// A cluster with a short peer_timeout. run() submits an operation on the ranks `alive`. A failure must end the
// operation. run() returns the error of each of these ranks.
class Failing {
 public:
  explicit Failing(const ClusterConfig& config) : cluster_(patient(config)), ranks_(cluster_) {
    ranks_.run(all_reduce(1000));
  }
  Cluster& cluster() { return cluster_; }

  std::vector<std::string> run(const Nodes& alive) {
    std::vector<uint64_t> cookies;
    for (const unsigned rank : alive) cookies.push_back(ranks_.submit(rank, all_reduce(1000)));
    const auto over = [&](size_t i) { return ranks_[alive[i]].over(cookies[i]).has_value(); };
    std::vector<std::string> texts(alive.size());
    pass(kPatience + kPatience / 2);
    for (size_t i = 0; i < alive.size(); ++i) {
      if (over(i)) texts[i] = ranks_[alive[i]].over(cookies[i])->text;
    }
    return texts;
  }
  void pass(Nanos time) {
    const Nanos end = cluster_.now() + time;
    for (; cluster_.now() < end; cluster_.set_now(cluster_.now() + 20 * kMicrosecond)) cluster_.step();
  }

  // Expects that the ring becomes ready again.
  void expect_back() {
    EXPECT_TRUE(cluster_.run_until([&] { return cluster_.ready(); }, 2 * kPatience));
  }

 private:
  static ClusterConfig patient(ClusterConfig config) {
    config.change = [](NodeConfig& it) { it.peer_timeout = kPatience; };
    return config;
  }
  Cluster cluster_;
  Ranks ranks_;
};

// Node 0's neighbours in the ring are 1 and 3, and both stay up.
TEST(Mesh, ADeadNodeThatIsNotBesideItInTheRingIsNamed) {
  Failing it({.nodes = 4, .strategies = "direct"});
  it.cluster().stop(2, true);
  for (const std::string& text : it.run({0, 1, 3})) EXPECT_THAT(text, testing::HasSubstr("rank 2"));
  EXPECT_EQ(missing(it.cluster(), 0), Nodes{2});
  it.cluster().stop(2, false);
  it.expect_back();
}

// All links of the ring stay up.
TEST(Mesh, ACutBetweenTwoThatAreNotBesideEachOtherIsNamedByAll) {
  Failing it({.nodes = 4, .strategies = "direct", .cuttable = std::pair(0U, 2U)});
  it.cluster().cut(true);
  // The first of the two ranks that notices the cut names the other one. All ranks get that error, also the named one.
  for (const std::string& text : it.run({0, 1, 2, 3})) {
    EXPECT_THAT(text, testing::AnyOf(testing::HasSubstr("rank 0 has been silent"),
                                     testing::HasSubstr("rank 2 has been silent")));
  }
  EXPECT_FALSE(it.cluster().ready());
  it.pass(2 * Snapshot<1>::kInterval);
  EXPECT_EQ(missing(it.cluster(), 0), Nodes{2});
  EXPECT_EQ(missing(it.cluster(), 1), Nodes{});
  EXPECT_EQ(missing(it.cluster(), 2), Nodes{0});
  it.cluster().cut(false);
  it.expect_back();
}

// ---- Memory

// The nodes have one port, as on Ethernet.
TEST(Mesh, PacketBuffersOf256NodesAreFewerThan48MiB) {
  NodeConfig config;
  for (unsigned i = 0; i < 256; ++i) config.nodes.push_back({.rank = i, .ip = 0x0a4d0001 + i, .mac = {}});
  config.ports = {{.name = "e0", .kind = PortConfig::Kind::kPci, .device = "0000:03:00.0", .nodes = {}, .mac = {}}};
  const size_t ring = Node::packet_bytes(config);
  config.strategies = find_strategies("ring,direct");
  EXPECT_GT(Node::packet_bytes(config), 2 * ring);
  EXPECT_LT(Node::packet_bytes(config), size_t{48} << 20);
}

}  // namespace
}  // namespace gradlane::test::mesh_test
