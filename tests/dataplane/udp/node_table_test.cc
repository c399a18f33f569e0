// node_table_test.cc - translation between addresses of sockets and addresses in frames, of nodes and of strangers
#include "dataplane/udp/node_table.h"

#include <gtest/gtest.h>

#include <string>

#include "config/addresses.h"
#include "config/loader.h"

namespace gradlane::test::node_table_test {
namespace {

Endpoint at(const std::string& ip, unsigned port) { return {*parse_address(ip), static_cast<uint16_t>(port)}; }

NodeTable table_of(const std::string& nodes) {
  return NodeTable(parse_config(
      "rank: 0\nnodes: [" + nodes + "]\nports: [{udp: auto}]\ntrainers: 2\nworkers: {lanes: 2}\nudp_port: 18400\n",
      "n.yaml"));
}

void check_both_ways(const NodeTable& table, const Endpoint& endpoint, FrameEndpoint in_frames) {
  EXPECT_EQ(table.in_frames(endpoint), in_frames) << endpoint_text(endpoint);
  EXPECT_EQ(table.endpoint_of(in_frames), endpoint) << endpoint_text(endpoint);
}

TEST(NodeTables, OfSocketsAsFramesAre) {
  const NodeTable table = table_of("{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}");
  for (const unsigned port : {18400U, 18403U, 18404U, 1U}) {
    check_both_ways(table, at("10.0.0.2", port), {0x0a000002, static_cast<uint16_t>(port)});
    check_both_ways(table, at("10.0.0.3", port), {0x0a000003, static_cast<uint16_t>(port)});
  }
}

TEST(NodeTables, OfIpv6) {
  const NodeTable table =
      table_of("{rank: 2, ip: fd00::1}, {rank: 0, ip: fd00::2, udp_port: 19000}, {rank: 1, ip: 'fd00::'}");
  check_both_ways(table, at("fd00::2", 19000), {0xf0000001, 18400});
  check_both_ways(table, at("fd00::2", 19003), {0xf0000001, 18403});
  check_both_ways(table, at("fd00::", 18401), {0xf0000002, 18401});
  check_both_ways(table, at("fd00::1", 18402), {0xf0000003, 18402});
  for (const Endpoint& stranger :
       {at("fd00::2", 18999), at("fd00::2", 19004), at("fd00::3", 19000), at("fc00::", 19000), at("fd00::2", 18400)}) {
    EXPECT_EQ(table.in_frames(stranger), (FrameEndpoint{kStrangerIp, 0})) << endpoint_text(stranger);
  }
}

TEST(NodeTables, OfSeveralNodesAtOneAddress) {
  const NodeTable table = table_of(
      "{rank: 0, ip: 10.0.0.1, udp_port: 18404}, {rank: 1, ip: 10.0.0.1, udp_port: 18396}, {rank: 2, ip: 10.0.0.1}");
  check_both_ways(table, at("10.0.0.1", 18396), {0xf0000002, 18400});
  check_both_ways(table, at("10.0.0.1", 18399), {0xf0000002, 18403});
  check_both_ways(table, at("10.0.0.1", 18400), {0xf0000003, 18400});
  check_both_ways(table, at("10.0.0.1", 18407), {0xf0000001, 18403});
  EXPECT_EQ(table.in_frames(at("10.0.0.1", 18408)), (FrameEndpoint{0x0a000001, 0}));
  EXPECT_EQ(table.in_frames(at("10.0.0.9", 18400)), (FrameEndpoint{0x0a000009, 0}));
}

// Frames have the nodes' own addresses. A sender at a node's address with another port is a stranger.
TEST(NodeTables, OfPortsAlone) {
  const NodeTable table = table_of("{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2, udp_port: 19000}");
  check_both_ways(table, at("10.0.0.2", 19001), {0x0a000002, 18401});
  check_both_ways(table, at("10.0.0.1", 18401), {0x0a000001, 18401});
  EXPECT_EQ(table.in_frames(at("10.0.0.2", 18400)), (FrameEndpoint{kStrangerIp, 0}));
  EXPECT_EQ(table.in_frames(at("10.0.0.3", 18400)), (FrameEndpoint{0x0a000003, 0}));
}

}  // namespace
}  // namespace gradlane::test::node_table_test
