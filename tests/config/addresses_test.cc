// addresses_test.cc - tests of nodes with IPv6 addresses, or at a shared address: in frames, in texts, faults
#include "config/addresses.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "config/loader.h"
#include "config/values.h"
#include "tests/config/same_config.h"

namespace gradlane::test::addresses_test {
namespace {

NodeConfig config_of(const std::string& nodes, const std::string& more = "ports: [{udp: auto}]\n") {
  return parse_config("rank: 0\nnodes: [" + nodes + "]\n" + more, "n.yaml");
}

// Returns the text of the SetupError, or an empty string if the file is right.
std::string fault_of(const std::string& nodes, const std::string& more = "ports: [{udp: auto}]\n") {
  try {
    (void)config_of(nodes, more);
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

constexpr const char* kSix = "{rank: 1, ip: 'fd00::2'}, {rank: 0, ip: fd00::1, udp_port: 19000}";
constexpr const char* kOneHost =
    "{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.1, udp_port: 19000}, {rank: 2, ip: 10.0.0.2}";

TEST(Addresses, OfNodesAsEver) {
  const NodeConfig config = config_of("{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}");
  EXPECT_EQ(config.nodes[1].ip, 0x0a000002U);
  EXPECT_FALSE(config.nodes[1].real);
  EXPECT_FALSE(needs_sockets(config));
  EXPECT_EQ(ip_udp_bytes(config), 28U);
  EXPECT_EQ(address_text(config.nodes[1]), "10.0.0.2");
}

TEST(Addresses, OfIpv6) {
  const NodeConfig config = config_of(kSix);
  EXPECT_EQ(config.nodes[0].ip, 0xf0000001U);
  EXPECT_EQ(config.nodes[1].ip, 0xf0000002U);
  EXPECT_TRUE(needs_sockets(config));
  EXPECT_EQ(ip_udp_bytes(config), 48U);
  EXPECT_EQ(address_text(config.nodes[0]), "[fd00::1]:19000");
  EXPECT_EQ(address_text(config, 0xf0000002), "fd00::2");
  EXPECT_EQ(address_text(config, kStrangerIp), "an address or UDP port that no node has");
  EXPECT_EQ(address_text(config, 0x0a000001), "10.0.0.1");
  EXPECT_EQ(udp_port_of(config, config.nodes[0]), 19000);
  EXPECT_EQ(udp_port_of(config, config.nodes[1]), 18400);
}

TEST(Addresses, WhichNodesUseANetwork) {
  const auto uses = [](const char* first, const char* second, const std::string& port) {
    return uses_network(config_of(std::string("{rank: 0, ip: ") + first + "}, {rank: 1, ip: " + second + "}",
                                  "ports: [" + port + "]\n"));
  };
  EXPECT_TRUE(uses("10.0.0.1", "10.0.0.2", "{udp: auto}"));
  EXPECT_TRUE(uses("127.0.0.1", "10.0.0.2", "{udp: auto}"));
  EXPECT_TRUE(uses("\"fd00::1\"", "\"fd00::2\"", "{udp: auto}"));
  EXPECT_TRUE(uses("10.0.0.1", "10.0.0.2", "{device: 'net_af_packet0,iface=eth0'}"));
  EXPECT_TRUE(uses("10.0.0.1", "10.0.0.2", "{pci: '0000:03:00.0'}"));
  EXPECT_FALSE(uses("127.0.0.1", "127.0.0.2", "{udp: auto}"));
  EXPECT_FALSE(uses("10.0.0.1", "10.0.0.2", "{ring: link0}"));
  EXPECT_FALSE(uses("10.0.0.1", "10.0.0.2", "{device: 'net_memif0,role=server,id=0,socket=/tmp/m.sock'}"));
  EXPECT_FALSE(uses("10.0.0.1", "10.0.0.2", "{device: 'net_vhost0,iface=/tmp/v.sock,client=1,queues=1'}"));
}

TEST(Addresses, MetricsAtThatOfTheNode) {
  const char* const more = "ports: [{udp: auto}]\nmetrics: node:9400\n";
  const auto text = [more](const char* nodes) { return address_text(*config_of(nodes, more).metrics); };
  EXPECT_EQ(text("{rank: 1, ip: 10.0.0.1}, {rank: 0, ip: 10.0.0.2}"), "10.0.0.2:9400");
  EXPECT_EQ(text(kSix), "[fd00::1]:9400") << "whatever its UDP port";
  EXPECT_EQ(text(kOneHost), "10.0.0.1:9400");
  EXPECT_EQ(
      fault_of("{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}", "ports: [{device: net_tap0}]\nmetrics: node:9400\n"),
      "n.yaml:4:10: metrics: 'node:9400' is only for ports of kind udp, because the kernel has no address of others, "
      "allowed: ADDRESS:PORT, as in 0.0.0.0:9400");
  EXPECT_EQ(fault_of("{rank: 0, ip: 10.0.0.1}, {rank: 0, ip: 10.0.0.2}", more),
            "n.yaml:2:41: nodes[1].rank: rank 0 is already used by nodes[0].rank, allowed: different ones");
}

TEST(Addresses, MetricsAtAUnixSocket) {
  const auto config = [](const std::string& metrics) {
    return config_of("{rank: 0, ip: 10.0.0.1}", "ports: []\nsocket: /x/n.sock\nmetrics: " + metrics + "\n");
  };
  EXPECT_EQ(config("/x/n.metrics").metrics_socket, "/x/n.metrics");
  EXPECT_FALSE(config("/x/n.metrics").metrics);
  EXPECT_EQ(config("127.0.0.1:9400").metrics_socket, "");
  for (const char* const taken : {"/x/n.sock", "/x/n.admin"}) {
    EXPECT_EQ(
        fault_of("{rank: 0, ip: 10.0.0.1}", std::string("ports: []\nsocket: /x/n.sock\nmetrics: ") + taken + "\n"),
        "n.yaml:5:10: metrics: this is the path of `socket` or `admin`, allowed: a different one");
  }
  EXPECT_NE(fault_of("{rank: 0, ip: 10.0.0.1}", "ports: []\nmetrics: /" + std::string(107, 'x') + "\n"), "");
}

TEST(Addresses, SeveralNodesAtOne) {
  const NodeConfig config = config_of(kOneHost);
  EXPECT_EQ(config.nodes[2].ip, 0xf0000003U);
  EXPECT_EQ(ip_udp_bytes(config), 28U);
  EXPECT_EQ(address_text(config.nodes[1]), "10.0.0.1:19000");
  EXPECT_EQ(address_text(config.nodes[2]), "10.0.0.2");
}

// A node with a UDP port of its own keeps its address in frames, but its ports must be sockets.
TEST(Addresses, PortsAlone) {
  const NodeConfig config = config_of("{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2, udp_port: 19000}");
  EXPECT_EQ(config.nodes[1].ip, 0x0a000002U);
  EXPECT_TRUE(needs_sockets(config));
}

TEST(Addresses, ThereAndBack) {
  for (const char* const nodes : {kSix, kOneHost}) {
    const NodeConfig config = config_of(nodes);
    EXPECT_TRUE(same(config, parse_config(config_text(config), "n.yaml"))) << config_text(config);
  }
  EXPECT_NE(config_text(config_of(kSix)).find("{rank: 0, ip: \"fd00::1\", udp_port: 19000}"), std::string::npos);
}

// The digest includes the configured addresses. So nodes notice that their lists differ, although the addresses in
// frames are the same.
TEST(Addresses, AreInTheDigest) {
  const NodeConfig config = config_of(kSix);
  for (const char* const other : {"{rank: 0, ip: fd00::1, udp_port: 19000}, {rank: 1, ip: fd00::3}",
                                  "{rank: 0, ip: fd00::1, udp_port: 19001}, {rank: 1, ip: fd00::2}",
                                  "{rank: 0, ip: fd00::1}, {rank: 1, ip: fd00::2}"}) {
    EXPECT_NE(rank_table_digest(config_of(other)), rank_table_digest(config)) << other;
    EXPECT_NE(ring_settings(config_of(other)).addresses, ring_settings(config).addresses) << other;
  }
  const char* const same = "{rank: 0, ip: fd00::1, udp_port: 19000}, {rank: 1, ip: fd00::2, udp_port: 18400}";
  EXPECT_EQ(rank_table_digest(config_of(same)), rank_table_digest(config));
}

TEST(Addresses, OfOneKindAndDifferent) {
  const std::string of = "n.yaml:2:";
  EXPECT_EQ(fault_of("{rank: 0, ip: fd00::1}, {rank: 1, ip: 10.0.0.1}"),
            of + "47: nodes[1].ip: 10.0.0.1 is of another kind than nodes[0].ip, fd00::1, allowed: only IPv4 "
                 "addresses, or only IPv6 addresses");
  EXPECT_EQ(fault_of("{rank: 0, ip: fd00::1}, {rank: 1, ip: 'FD00:0::1'}"),
            of + "47: nodes[1].ip: fd00::1 is already used by nodes[0].ip, allowed: different ones; or with sockets, a "
                 "`udp_port` for each, 1 apart");
  const std::string apart = "{rank: 0, ip: ::1, udp_port: 19000}, {rank: 1, ip: ::1, udp_port: 19004}";
  EXPECT_EQ(fault_of(apart, "ports: [{udp: any}]\ntrainers: 2\nworkers: {lanes: 2}"), "");
  EXPECT_EQ(fault_of(apart, "ports: [{udp: any}]\ntrainers: 5\n"),
            of + "60: nodes[1].ip: ::1 is already used by nodes[0].ip, allowed: different ones; or with sockets, a "
                 "`udp_port` for each, 5 apart");
  EXPECT_EQ(fault_of("{rank: 0, ip: ::1, udp_port: 65535}", "trainers: 2"),
            of + "38: nodes[0].udp_port: 65535 is the first of 2 ports, one for each lane and trainer, allowed: 1 to "
                 "65534");
}

TEST(Addresses, OfHosts) {
  const auto fault = [](const std::string& ip) { return fault_of("{rank: 0, ip: '" + ip + "'}", ""); };
  const auto text = [](const std::string& ip, const std::string& what) {
    return "n.yaml:2:23: nodes[0].ip: '" + ip + "' is " + what + ", allowed: the address of a host, as in fd00::1";
  };
  EXPECT_EQ(fault("2001:db8::7"), "");
  EXPECT_EQ(fault("::1"), "");
  for (const char* const ip : {"::", "ff02::1", "fe80::1", "febf::1"}) {
    EXPECT_EQ(fault(ip), text(ip, "not the address of a host"));
  }
  EXPECT_EQ(fault("fe80::1%eth0"), text("fe80::1%eth0", "a link-local address"));
  for (const char* const ip : {"fd00::g", "1:2:3", "[fd00::1]"}) {
    EXPECT_EQ(fault(ip), text(ip, "not an IPv6 address"));
  }
}

TEST(Addresses, OfSocketsOnly) {
  EXPECT_EQ(fault_of(kSix, "ports: [{device: net_tap0}]\n"),
            "n.yaml:3:18: ports[0].device: nodes have IPv6 addresses, their own UDP ports, or one address in common, "
            "which needs sockets, allowed: udp: auto");
  EXPECT_EQ(fault_of(kSix, "ports: [{udp: auto}, {udp: any, nodes: [1]}]\n").find("n.yaml:3:28: ports[1].udp: "), 0U);
}

}  // namespace
}  // namespace gradlane::test::addresses_test
