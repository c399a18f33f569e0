// nodes_test.cc - tests of which node a file is for, and of faults of links inside a machine
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "config/loader.h"

namespace gradlane::test::nodes_test {
namespace {

// Returns the text of the SetupError, or an empty string if the file is right.
std::string fault_of(const std::string& text) {
  try {
    (void)parse_config(text, "n.yaml");
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

// The file does not say which node this machine is. The rank or the host names that are given decide.
TEST(Nodes, OfAFile) {
  const std::string nodes = "nodes: [{rank: 0, ip: 1.1.1.1, host: a}, {rank: 1, ip: 1.1.1.2, host: B.x}]\n";
  const auto fault = [&](const std::string& text, const NodeChoice& choice) -> std::string {
    try {
      return "rank " + std::to_string(parse_config(text + "ports: [{ring: x}]\n", "n.yaml", choice).rank);
    } catch (const SetupError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(fault(nodes, {{}, {"b.x", "10.0.0.2"}}), "rank 1");
  EXPECT_EQ(fault(nodes + "rank: auto\n", {{}, {"a"}}), "rank 0");
  EXPECT_EQ(fault(nodes + "rank: 1\n", {{}, {"a"}}), "rank 1");
  EXPECT_EQ(fault(nodes + "rank: 1\n", {0, {}}), "rank 0");
  EXPECT_EQ(fault(nodes, {1, {"a"}}), "rank 1");
  EXPECT_EQ(fault(nodes, {2, {}}), "n.yaml:1:1: 2 (--rank) is not in the table of nodes, allowed: 0 to 1");
  EXPECT_EQ(fault(nodes, {{}, {"c", "10.0.0.3"}}),
            "n.yaml:1:1: rank: no node has a `host` that is this machine (c, 10.0.0.3), allowed: one node that has "
            "one; or give --rank 0 to 1");
  EXPECT_EQ(fault("rank: auto\n" + nodes, {{}, {"a", "b.x"}}),
            "n.yaml:1:7: rank: 2 nodes have a `host` that is this machine, allowed: one node; or give --rank 0 to 1");
  EXPECT_EQ(fault("rank: auto\nnodes: [{rank: 0, ip: 1.1.1.1}]\n", {}),
            "n.yaml:1:7: rank: is auto, but no node has a `host` to find it by, allowed: 0 to 0; or give --rank");
}

TEST(Nodes, LocalLinks) {
  const std::string nodes = "rank: 0\nnodes: [{rank: 0, ip: 1.1.1.1}, {rank: 1, ip: 1.1.1.2}]\n";
  const auto fault = [&](const std::string& device, unsigned lanes = 1) {
    return fault_of(nodes + "ports: [{device: \"" + device + "\"}]\nworkers: {lanes: " + std::to_string(lanes) + "}");
  };
  const std::string at = "n.yaml:3:18: ports[0].device: ";
  EXPECT_EQ(fault("net_vhost0,iface=/s,client=1"), "");
  EXPECT_EQ(fault("net_virtio_user0,path=/s,server=1,queue_size=1024"), "");
  EXPECT_EQ(fault("net_virtio_user0,path=/s,server=1,queues=8", 8), "");
  EXPECT_EQ(fault("net_virtio_user0,path=/dev/vhost-net"), "");
  EXPECT_EQ(fault("net_vhost0,client=1"), at + "vhost needs a socket; allowed: iface=PATH, as on the other side");
  EXPECT_EQ(fault("net_virtio_user0,server=1"),
            at + "virtio_user needs a socket; allowed: path=PATH, as on the other side");
  EXPECT_EQ(fault("net_vhost0,iface=/s"),
            at + "the other side does not find a vhost server again after a restart; allowed: client=1 here, "
                 "and net_virtio_user with server=1 on the other side");
  EXPECT_EQ(fault("net_virtio_user0,path=/s,server=0"),
            at + "a virtio_user client does not find the other side again after a restart; allowed: server=1 "
                 "here, and net_vhost with client=1 on the other side");
  EXPECT_EQ(fault("net_vhost0,iface=/s,client=1", 2),
            at + "queues=1, but workers.lanes is 2; allowed: queues=2, on both sides");
  EXPECT_EQ(fault("net_virtio_user0,path=/s,server=1,queues=2"),
            at + "queues=2, but workers.lanes is 1; allowed: queues=1, on both sides");
  EXPECT_EQ(fault("net_vhost0,iface=/s,client=1,queues=9", 9),
            at + "DPDK's virtio has 8 queue pairs at most, but workers.lanes is 9; allowed: lanes: 8");
  EXPECT_EQ(fault("net_virtio_user0,path=/s,server=1,queue_size=2048"),
            at + "queue_size=2048 needs more buffers than there are; allowed: queue_size=1024 and less");
  EXPECT_EQ(fault("net_virtio_user0,path=/s,server=1,mac=02:00:00:00:00:01"),
            at + "the device takes its MAC address from the port; allowed: the port's key 'mac'");
}

// this_machine() finds the names of this machine, in lower case, and no loopback addresses.
TEST(Nodes, ThisMachine) {
  const NodeChoice choice = this_machine(3);
  EXPECT_EQ(choice.rank, 3U);
  ASSERT_FALSE(choice.hosts.empty());
  for (const std::string& host : choice.hosts) {
    EXPECT_FALSE(host.empty() || host.starts_with("127."));
    EXPECT_EQ(host.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), std::string::npos) << host;
  }
}

}  // namespace
}  // namespace gradlane::test::nodes_test
