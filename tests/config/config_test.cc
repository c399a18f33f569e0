// config_test.cc - tests of a node's configuration: defaults, every key, writing it back as text, and the digest
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "config/addresses.h"
#include "config/key_types.h"
#include "config/loader.h"
#include "tests/config/same_config.h"

namespace gradlane::test::config_test {
namespace {

constexpr const char* kEveryKey = R"(
rank: 2
nodes:
  - {rank: 2, ip: 10.77.0.3}
  - {rank: 0, ip: 10.77.0.1, mac: "02:00:00:00:00:0A", host: one.x}
  - {rank: 1, ip: 192.168.200.255}
  - {rank: 3, ip: 1.0.0.0}
trainers: 3
local_reduce: true
verify: true
socket: /tmp/with space/"node" \2.sock
admin: /tmp/other.sock
codec: inceptionn:10,truncate
strategies: [direct, "aggregator:3,stream", rings:2, aggregator:0,stream, aggregator:0]
mtu: 9000
segments: false
udp_port: 0x4000
tos: {compressed: 0x48, raw: 68, control: 0}
ports:
  - name: left
    device: net_memif7,role=client,socket=/tmp/a "b".sock,bsize=9216
    nodes: [1]
    mac: 02:ff:00:00:00:01
  - ring: link02
    nodes: [3]
  - name: spare-1.x
    pci: "0000:AF:1f.7,arg=1"
    nodes: [0]
workers: {lanes: 4, threads: 2, cores: [1, 3], idle: spin}
memory: {hugepages: true, per_trainer: 3MiB}
exchange: {window: 4096, operations: 7, max_tensor: 1000, queue_target: 33}
timeouts: {peer: 1500ms, start: 2min, operation: 3h, shutdown: 0s, min_rto: 70us}
auth: {key_file: /etc/a "b".key}
containment: false
user: grad-lane_1
faults: {drop: 1%, duplicate: 0.1%, reorder: 0.02, corrupt: 1, delay: 12.5%, delay_time: 3ms, seed: 0xffffffffffffffff}
metrics: "[fd00::1]:9400"
telemetry: true
log: trace
log_file: /var/log/"x" y.log
)";

std::string two_nodes(const std::string& more = "") {
  return "rank: 0\nnodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}]\nports: [{ring: x}]\n" + more;
}

TEST(Config, DefaultsAreThoseOfTheStruct) {
  NodeConfig want;
  want.nodes = {{.rank = 0, .ip = 0x0a000001, .mac = {}}, {.rank = 1, .ip = 0x0a000002, .mac = {}}};
  want.ports = {{.name = "e0", .kind = PortConfig::Kind::kRing, .device = "x", .nodes = {}, .mac = {}}};
  want.socket = "/run/gradlane/node0.sock";
  want.admin = "/run/gradlane/node0.admin";
  const NodeConfig config = parse_config(two_nodes(), "a.yaml");
  EXPECT_TRUE(same(config, want)) << config_text(config);
  EXPECT_EQ(config.file, "a.yaml");
}

// Packets that go in segments through a network are long, so fewer of them may wait in its queues.
TEST(Config, QueueTargetOfSockets) {
  const auto target = [](const std::string& ip, const std::string& more) {
    const std::string nodes = "rank: 0\nnodes: [{rank: 0, ip: " + ip + "1}, {rank: 1, ip: " + ip + "2}]\n";
    return parse_config(nodes + "ports: [{udp: auto}]\n" + more, "").queue_target;
  };
  EXPECT_EQ(target("10.0.0.", ""), kSegmentsQueueTarget);
  EXPECT_EQ(target("10.0.0.", "exchange: {queue_target: 5}"), 5U);
  EXPECT_EQ(target("127.0.0.", ""), kSocketQueueTarget);
  for (const char* const whole : {"segments: false", "mtu: 9000", "auth: {key_file: /etc/a.key}"}) {
    EXPECT_EQ(target("10.0.0.", whole), kSocketQueueTarget) << whole;
  }
}

TEST(Config, SocketIsNamedAfterTheNode) {
  std::string text = two_nodes();
  text.replace(text.find("rank: 0"), 7, "rank: 1");
  EXPECT_EQ(parse_config(text, "").socket, "/run/gradlane/node1.sock");
}

TEST(Config, AdminIsBesideTheSocket) {
  const auto admin = [](const char* more) { return parse_config(two_nodes(more), "").admin; };
  EXPECT_EQ(admin("socket: /a/b.sock"), "/a/b.admin");
  EXPECT_EQ(admin("socket: /a.sock/b"), "/a.sock/b.admin");
  EXPECT_EQ(admin("socket: .sock"), ".admin");
  EXPECT_EQ(admin("socket: /a/b.sock\nadmin: c"), "c");
}

TEST(Config, ProbabilitiesComeBackAsTheyWere) {
  for (const char* drop : {"0", "0%", "1", "100%", "0.3333333333333333", "33.333333333333336%", "0.0000001%", "1.0",
                           "99.99999999999999%", "00.1"}) {
    const NodeConfig config = parse_config(two_nodes(std::string("faults: {drop: ") + drop + "}"), "");
    EXPECT_EQ(parse_config(config_text(config), "").faults, config.faults) << config_text(config);
    EXPECT_EQ(config.faults.any(), drop[0] != '0' || std::string_view(drop).size() > 2) << drop;
  }
}

TEST(Config, OneNodeNeedsNoPorts) {
  const NodeConfig config = parse_config("rank: 0\nnodes: [{rank: 0, ip: 10.0.0.1}]", "");
  EXPECT_TRUE(config.ports.empty());
  EXPECT_TRUE(same(parse_config(config_text(config), ""), config)) << config_text(config);
}

void check_nodes(const NodeConfig& config) {
  const MacAddress mac = {2, 0, 0, 0, 0, 10};
  const auto node = [](unsigned rank, uint32_t ip, std::optional<MacAddress> its = {}, const char* host = "") {
    return fields(NodeAddress{.rank = rank, .ip = ip, .mac = its, .host = host});
  };
  ASSERT_EQ(config.nodes.size(), 4u);
  EXPECT_EQ(fields(config.nodes[0]), node(0, 0x0a4d0001, mac, "one.x"));
  EXPECT_EQ(fields(config.nodes[1]), node(1, 0xc0a8c8ff));
  EXPECT_EQ(fields(config.nodes[2]), node(2, 0x0a4d0003));
  EXPECT_EQ(fields(config.nodes[3]), node(3, 0x01000000));
}

void check_ports(const NodeConfig& config) {
  using Kind = PortConfig::Kind;
  const auto none = std::optional<MacAddress>();
  const auto mac = std::optional(MacAddress{2, 255, 0, 0, 0, 1});
  ASSERT_EQ(config.ports.size(), 3u);
  EXPECT_EQ(
      fields(config.ports[0]),
      std::tuple(std::string("left"), Kind::kDevice,
                 std::string("net_memif7,role=client,socket=/tmp/a \"b\".sock,bsize=9216"), std::vector{1u}, mac));
  EXPECT_EQ(fields(config.ports[1]),
            std::tuple(std::string("e1"), Kind::kRing, std::string("link02"), std::vector{3u}, none));
  EXPECT_EQ(fields(config.ports[2]),
            std::tuple(std::string("spare-1.x"), Kind::kPci, std::string("0000:AF:1f.7,arg=1"), std::vector{0u}, none));
}

TEST(Config, EveryKeyIsRead) {
  const NodeConfig config = parse_config(kEveryKey, "");
  check_nodes(config);
  check_ports(config);
  EXPECT_EQ(config.rank, 2u);
  EXPECT_EQ(config.trainers, 3u);
  EXPECT_TRUE(config.local_reduce);
  EXPECT_TRUE(config.verify);
  EXPECT_EQ(config.socket, "/tmp/with space/\"node\" \\2.sock");
  EXPECT_EQ(config.codec.name(), "inceptionn:10,truncate");
  const auto names = {"direct", "aggregator:3,stream", "rings:2", "aggregator:0,stream", "aggregator:0"};
  EXPECT_TRUE(std::ranges::equal(config.strategies, names, {}, {}, [](const char* it) { return find_strategy(it); }));
  EXPECT_EQ(config.mtu, 9000u);
  EXPECT_EQ(config.udp_port, 0x4000);
  EXPECT_EQ(config.tos_compressed, 0x48);
  EXPECT_EQ(config.tos_raw, 68);
  EXPECT_EQ(config.tos_control, 0);
  EXPECT_EQ(config.lanes, 4u);
  EXPECT_EQ(config.threads, 2u);
  EXPECT_EQ(config.cores, (std::vector{1u, 3u}));
  EXPECT_EQ(config.idle, IdlePolicy::kSpin);
  EXPECT_TRUE(config.hugepages);
  EXPECT_EQ(config.trainer_memory, size_t{3} << 20);
  EXPECT_EQ(config.window, 4096u);
  EXPECT_EQ(config.operations, 7u);
  EXPECT_EQ(config.max_tensor, 1000u);
  EXPECT_EQ(config.queue_target, 33u);
  EXPECT_FALSE(config.segments);
  EXPECT_EQ(config.peer_timeout, 1500 * kMillisecond);
  EXPECT_EQ(config.start_timeout, 120 * kSecond);
  EXPECT_EQ(config.operation_timeout, 10800 * kSecond);
  EXPECT_EQ(config.shutdown_timeout, 0u);
  EXPECT_EQ(config.min_rto, 70 * kMicrosecond);
  EXPECT_EQ(config.admin, "/tmp/other.sock");
  EXPECT_EQ(config.key_file, "/etc/a \"b\".key");
  EXPECT_EQ(config.user, "grad-lane_1");
  EXPECT_FALSE(config.containment);
  EXPECT_EQ(fields(config.faults), std::tuple(0.01, 0.001, 0.02, 1.0, 0.125, 3 * kMillisecond, UINT64_MAX));
  EXPECT_EQ(config.metrics, (IpPort{*parse_address("fd00::1"), 9400}));
  EXPECT_TRUE(config.telemetry);
  EXPECT_EQ(config.log, "trace");
  EXPECT_EQ(config.log_file, "/var/log/\"x\" y.log");
}

TEST(Config, KnowsWhetherSecurityWasChosen) {
  EXPECT_FALSE(parse_config(two_nodes(), "").security_chosen);
  for (const char* const chosen : {"security: none", "auth: {key_file: /x}"}) {
    EXPECT_TRUE(parse_config(two_nodes(chosen), "").security_chosen) << chosen;
  }
}

TEST(Config, TextReadsToTheSame) {
  for (const std::string& text :
       {std::string(kEveryKey), two_nodes(), two_nodes("socket: \"null\"\nlog: warn"),
        two_nodes("auth: {key_file: \"~\"}\nuser: \"true\"\nfaults: {delay: 100%}"),
        two_nodes("workers: {idle: yield}\nmetrics: 0.0.0.0:1"), two_nodes("metrics: /run/x y.sock")}) {
    const NodeConfig config = parse_config(text, "");
    const std::string written = config_text(config);
    const NodeConfig again = parse_config(written, "");
    EXPECT_TRUE(same(again, config)) << written;
    EXPECT_EQ(config_text(again), written);
  }
}

TEST(Config, EachKeyIsReadAndWritten) {
  const NodeConfig config = parse_config(kEveryKey, "");
  for (const ConfigKey<NodeConfig>& key : node_keys()) {
    const std::string_view name = key.name;
    // kEveryKey does not set these four keys. A plan, for example, would be read from its file.
    if (key.text == nullptr || name == "mode" || name == "strategy" || name == "calibration" || name == "plan")
      continue;
    EXPECT_NE(key.text(config), key.text(NodeConfig{})) << key.section << " " << name;
  }
}

TEST(Config, EachKeyIsDescribed) {
  const auto check = [](const auto& keys) {
    for (const auto& key : keys) {
      EXPECT_STRNE(key.meaning, "") << key.section << " " << key.name;
      EXPECT_STRNE(key.type, "") << key.section << " " << key.name;
    }
  };
  check(node_keys());
  check(accelerator_keys());
}

// All of these texts mean the same configuration, written in different ways.
TEST(Config, YamlIsYaml) {
  const NodeConfig want = parse_config(two_nodes("trainers: 2"), "");
  for (const std::string& text : {
           "---\n" + two_nodes("trainers: 2") + "\n...\n",
           "\xef\xbb\xbf# \xc3\xa4\n" + two_nodes("'trainers':   \"2\" # two\n\n"),
           two_nodes("trainers: &two 2"),
           std::string("{rank: 0, trainers: 2, ports: [ring: x], nodes: [{ip: 10.0.0.2, rank: 1}, {rank: 0, "
                       "ip: 10.0.0.1}]}"),
           std::string(
               "nodes:\r\n- rank: 0\r\n  ip: 10.0.0.1\r\n-\r\n  ip: 10.0.0.2\r\n  rank: 1\r\nports:\r\n- ring: >-\r\n"
               "    x\r\ntrainers: 2\r\nrank: 0\r\n"),
       }) {
    EXPECT_TRUE(same(parse_config(text, ""), want)) << text;
  }
}

TEST(Digest, ChangesWithWhatMustBeEqual) {
  const auto digest = [](const std::string& text) { return rank_table_digest(parse_config(text, "")); };
  const uint64_t base = digest(two_nodes());
  for (const char* more : {"trainers: 2", "local_reduce: true", "udp_port: 18401", "workers: {lanes: 2}",
                           "tos: {compressed: 0x24}", "tos: {raw: 0x24}", "tos: {control: 0x24}"}) {
    EXPECT_NE(digest(two_nodes(more)), base) << more;
  }
  std::string other = two_nodes();
  other.replace(other.find("10.0.0.2"), 8, "10.0.0.3");
  EXPECT_NE(digest(other), base);
  std::string swapped = two_nodes();
  swapped.replace(swapped.find("10.0.0.1"), 8, "10.0.0.9");
  swapped.replace(swapped.find("10.0.0.2"), 8, "10.0.0.1");
  swapped.replace(swapped.find("10.0.0.9"), 8, "10.0.0.2");
  EXPECT_NE(digest(swapped), base);
}

TEST(Digest, LeavesOutWhatMayDiffer) {
  const auto digest = [](const std::string& text) { return rank_table_digest(parse_config(text, "")); };
  const uint64_t base = digest(two_nodes());
  for (const char* more :
       {"mtu: 600", "codec: raw", "socket: /tmp/x", "log: error", "telemetry: true", "metrics: 127.0.0.1:9400",
        "memory: {per_trainer: 1GiB}", "workers: {idle: spin, cores: [1]}", "exchange: {window: 2}",
        "timeouts: {peer: 1s}", "admin: /tmp/y", "auth: {key_file: k}", "user: nobody", "faults: {drop: 1%}"}) {
    EXPECT_EQ(digest(two_nodes(more)), base) << more;
  }
  std::string text = two_nodes();
  text.replace(text.find("rank: 0"), 7, "rank: 1");
  EXPECT_EQ(digest(text), base);
  // The digest does not depend on the order of the table or on MAC addresses.
  EXPECT_EQ(digest("rank: 0\nnodes: [{rank: 1, ip: 10.0.0.2, mac: \"02:00:00:00:00:02\"}, {rank: 0, ip: 10.0.0.1}]\n"
                   "ports: [{ring: x}]\n"),
            base);
}

// Nodes of different builds compare the digest. It must not change by accident.
TEST(Digest, IsWhatItWas) { EXPECT_EQ(rank_table_digest(parse_config(two_nodes(), "")), 0xa01d5bf388bea5cu); }

}  // namespace
}  // namespace gradlane::test::config_test
