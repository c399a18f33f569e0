// faults_test.cc - tests of the messages about wrong configuration files, and of the lines and columns that they name
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/accelerator.h"
#include "config/calibration_file.h"
#include "config/loader.h"
#include "config/yaml_tree.h"
#include "tests/thorough.h"

namespace gradlane::test::faults_test {
namespace {

// Returns the text of the SetupError, or an empty string if the file is right.
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

constexpr std::string_view kRootKeys =
    "mode, rank, nodes, trainers, local_reduce, verify, socket, admin, codec, strategies, strategy, calibration, plan, "
    "mtu, "
    "segments, udp_port, tos, ports, workers, memory, exchange, timeouts, security, auth, user, containment, faults, "
    "metrics, "
    "telemetry, "
    "log, log_file";

TEST(Faults, TheFilesTheRowsAreMadeOfAreRight) { EXPECT_EQ(fault_of(std::string(kNodes) + kPorts), ""); }

TEST(Faults, Keys) {
  const std::string keys(kRootKeys);
  const std::string near = "4:1: trainer: unknown key, did you mean 'trainers'? allowed: " + keys;
  const std::string far = "4:1: colour: unknown key, allowed: " + keys;
  const std::string odd = "4:1: 'a b': unknown key, allowed: " + keys;
  const std::string merge = "4:1: '<<': unknown key, allowed: " + keys;
  check(std::string(kNodes) + kPorts,
        {{"trainer: 1", near.c_str()},
         {"colour: 1", far.c_str()},
         {"a b: 1", odd.c_str()},
         {"<<: {mtu: 1500}", merge.c_str()},
         {"mtu: 1500\nlog: info\nmtu: 1500", "6:1: mtu: given twice, first in line 4, allowed: once"},
         {"workers: {threads: 1, lane: 1}",
          "4:23: workers.lane: unknown key, did you mean 'lanes'? allowed: lanes, threads, cores, idle"},
         {"workers: {lanes: 1,\n  lanes: 1}", "5:3: workers.lanes: given twice, first in line 4, allowed: once"},
         {"memory: [1]", "4:9: memory: a list where a map should be, allowed: keys hugepages, per_trainer"},
         {"memory:\nmtu: 600", "4:1: memory: nothing where a map should be, allowed: keys hugepages, per_trainer"},
         {"memory: none", "4:9: memory: 'none' where a map should be, allowed: keys hugepages, per_trainer"}});
}

TEST(Faults, MissingKeys) {
  check("", {{"rank: 0", "1:1: nodes: is missing, and has no default"},
             {"# a comment\nnodes: [{rank: 0, ip: 1.1.1.1}]",
              "2:1: rank: is missing, but no node has a `host` to find it by, allowed: 0 to 0; or give --rank"},
             {"rank: 0\nnodes: [{ip: 1.1.1.1}]", "2:9: nodes[0].rank: is missing, and has no default"},
             {"rank: 0\nnodes:\n  - rank: 0\n", "3:5: nodes[0].ip: is missing, and has no default"},
             {"rank: 0\nnodes: [{rank: 0, ip: 1.1.1.1}]\nports: [{name: a}]",
              "3:9: ports[0]: has no device, allowed: one of the keys device, pci, ring, udp"},
             {kNodes, "1:1: ports: is missing, allowed: at least one port, because there are other nodes"}});
}

TEST(Faults, WhereMetricsAreServed) {
  for (const char* const word : {"9400", "localhost:9400", "127.0.0.1:0", "127.0.0.1:65536", "'::1:9400'",
                                 "'[127.0.0.1]:9400'", "':9400'", "node:0", "node:65536"}) {
    const std::string text(word);
    const std::string shown = text.front() == '\'' ? text : "'" + text + "'";
    EXPECT_EQ(fault_of(std::string(kNodes) + kPorts + "metrics: " + text),
              "n.yaml:4:10: metrics: " + shown +
                  " is not an address with a port, allowed: ADDRESS:PORT, as in 127.0.0.1:9400 or \"[::1]:9400\"; "
                  "node:PORT; or /PATH of a Unix socket");
  }
  EXPECT_EQ(fault_of(std::string(kNodes) + kPorts + "metrics: '[::]:9400'"), "");
}

TEST(Faults, Types) {
  check(std::string(kNodes) + kPorts,
        {{"trainers: [1]", "4:11: trainers: a list where a whole number should be, allowed: 1 to 16"},
         {"trainers:", "4:1: trainers: nothing where a whole number should be, allowed: 1 to 16"},
         {"trainers: ~", "4:1: trainers: nothing where a whole number should be, allowed: 1 to 16"},
         {"trainers: one", "4:11: trainers: 'one' is not a whole number, allowed: 1 to 16"},
         {"trainers: 1.0", "4:11: trainers: '1.0' is not a whole number, allowed: 1 to 16"},
         {"trainers: -1", "4:11: trainers: '-1' is not a whole number, allowed: 1 to 16"},
         {"trainers: 99999999999999999999",
          "4:11: trainers: '99999999999999999999' is not a whole number, allowed: 1 to 16"},
         {"trainers: ''", "4:11: trainers: '' is not a whole number, allowed: 1 to 16"},
         {"trainers: 0x", "4:11: trainers: '0x' is not a whole number, allowed: 1 to 16"},
         {"telemetry: yes", "4:12: telemetry: 'yes' is unknown, allowed: false, true"},
         {"telemetry: {a: b}", "4:12: telemetry: a map where one word should be, allowed: false, true"},
         {"log: loud", "4:6: log: 'loud' is unknown, allowed: trace, debug, info, warn, error"},
         {"workers: {idle: sleep}", "4:17: workers.idle: 'sleep' is unknown, allowed: spin, yield, adaptive"},
         {"workers: {cores: 1}", "4:18: workers.cores: '1' where a list should be, allowed: [...] of numbers of CPUs"},
         {"workers: {cores: [a]}", "4:19: workers.cores[0]: 'a' is not a whole number, allowed: 0 to 1023"},
         {"socket: {}", "4:9: socket: a map where a text should be, allowed: 1 to 107 bytes"},
         {"socket: \"\"", "4:9: socket: '' has 0 bytes, allowed: 1 to 107 bytes"},
         {"socket: \"a\\nb\"",
          "4:9: socket: 'a\\x0ab' has control characters in it, allowed: 1 to 107 bytes without any"}});
  EXPECT_EQ(fault_of(std::string(kNodes) + kPorts + "admin: x\nsocket: " + std::string(107, 'a')), "");
  EXPECT_EQ(fault_of(std::string(kNodes) + kPorts + "socket: " + std::string(108, 'a')),
            "n.yaml:4:9: socket: '" + std::string(60, 'a') + "...' has 108 bytes, allowed: 1 to 107 bytes");
}

TEST(Faults, Quantities) {
  check(
      std::string(kNodes) + kPorts,
      {{"exchange: {max_tensor: 1KB}",
        "4:24: exchange.max_tensor: '1KB' is not a size, allowed: 128B to 256GiB, as in 512, 64KiB, 256MiB, 4GiB"},
       {"exchange: {max_tensor: 127}",
        "4:24: exchange.max_tensor: '127' is out of range, allowed: 128B to 256GiB, as in 512, 64KiB, 256MiB, 4GiB"},
       {"exchange: {max_tensor: 257GiB}",
        "4:24: exchange.max_tensor: '257GiB' is out of range, allowed: 128B to 256GiB, as in 512, 64KiB, 256MiB, 4GiB"},
       {"memory: {per_trainer: 16777216TiB}",
        "4:23: memory.per_trainer: '16777216TiB' is not a size, allowed: 1MiB to 1TiB, as in 512, 64KiB, 256MiB, 4GiB"},
       {"memory: {per_trainer: [1]}",
        "4:23: memory.per_trainer: a list where a size should be, allowed: 1MiB to 1TiB, as in 512, 64KiB, 256MiB, "
        "4GiB"},
       {"timeouts: {peer: 2}",
        "4:18: timeouts.peer: '2' is a duration without a unit, allowed: 10ms to 1h, with a unit: us, ms, s, min, h"},
       {"timeouts: {peer: 2 s}",
        "4:18: timeouts.peer: '2 s' is not a duration, allowed: 10ms to 1h, with a unit: us, ms, s, min, h"},
       {"timeouts: {peer: 9ms}",
        "4:18: timeouts.peer: '9ms' is out of range, allowed: 10ms to 1h, with a unit: us, ms, s, min, h"},
       {"timeouts: {start: 0s}",
        "4:19: timeouts.start: '0s' is out of range, allowed: 1ms to 10h, with a unit: us, ms, s, min, h"},
       {"timeouts: {operation: 11h}",
        "4:23: timeouts.operation: '11h' is out of range, allowed: 1ms to 10h, with a unit: us, ms, s, min, h"},
       {"timeouts: {shutdown: 2h}",
        "4:22: timeouts.shutdown: '2h' is out of range, allowed: 0s to 1h, with a unit: us, ms, s, min, h"},
       {"timeouts: {min_rto: 9us}",
        "4:21: timeouts.min_rto: '9us' is out of range, allowed: 10us to 1s, with a unit: us, ms, s, min, h"},
       {"exchange: {window: 1}", "4:20: exchange.window: '1' is out of range, allowed: 2 to 4096"},
       {"exchange: {window: 12}",
        "4:20: exchange.window: 12 is not a power of two, allowed: 2, 4, 8 and so on up to 4096"},
       {"exchange: {operations: 257}", "4:24: exchange.operations: '257' is out of range, allowed: 1 to 256"},
       {"exchange: {queue_target: 0}", "4:26: exchange.queue_target: '0' is out of range, allowed: 1 to 4096"},
       {"mtu: 575", "4:6: mtu: '575' is out of range, allowed: 576 to 16384"},
       {"mtu: 16385", "4:6: mtu: '16385' is out of range, allowed: 576 to 16384"},
       {"udp_port: 0", "4:11: udp_port: '0' is out of range, allowed: 1 to 65535"},
       {"udp_port: 65530\ntrainers: 4\nworkers: {lanes: 2}",
        "4:11: udp_port: 65530 is the first of 8 ports, one for each lane and trainer, allowed: 1 to 65528"}});
  EXPECT_EQ(fault_of(std::string(kNodes) + kPorts + "udp_port: 65528\ntrainers: 4\nworkers: {lanes: 2}"), "");
}

TEST(Faults, Sockets) {
  check(std::string(kNodes) + kPorts,
        {{"socket: /a\nadmin: /a", "5:8: admin: this is the path of `socket`, allowed: a different one"},
         {"admin: /run/gradlane/node1.sock", "4:8: admin: this is the path of `socket`, allowed: a different one"},
         {"admin: \"\"", "4:8: admin: '' has 0 bytes, allowed: 1 to 107 bytes"},
         {"admin: []", "4:8: admin: a list where a text should be, allowed: 1 to 107 bytes"}});
  const std::string before = std::string(kNodes) + kPorts + "socket: ";
  EXPECT_EQ(fault_of(before + std::string(101, 'a')), "");
  EXPECT_EQ(fault_of(before + std::string(101, 'a') + ".sock"), "");
  EXPECT_EQ(
      fault_of(before + std::string(102, 'a')),
      "n.yaml:4:9: socket: the path of `admin` would be this path with .admin at its end, of 108 bytes, allowed: up to "
      "107; set `admin`");
}

TEST(Faults, Protection) {
  check(std::string(kNodes) + kPorts,
        {{"auth: key", "4:7: auth: 'key' where a map should be, allowed: keys key_file"},
         {"auth: {}", "4:7: auth.key_file: is missing, and has no default"},
         {"auth: {key: a}", "4:8: auth.key: unknown key, allowed: key_file"},
         {"auth: {key_file: ''}", "4:18: auth.key_file: '' has 0 bytes, allowed: 1 to 4095 bytes"},
         {"user: a b", "4:7: user: 'a b' is not a name, allowed: 1 to 32 letters, digits, '_', '-' and '.'"},
         {"user: ''", "4:7: user: '' has 0 bytes, allowed: 1 to 32 bytes"}});
}

TEST(Faults, InjectedFaults) {
  check(std::string(kNodes) + kPorts,
        {{"faults: [1]",
          "4:9: faults: a list where a map should be, allowed: keys drop, duplicate, reorder, corrupt, delay, "
          "delay_time, seed"},
         {"faults: {drop: 2}", "4:16: faults.drop: '2' is not a probability, allowed: 0 to 1, as in 1%, 0.1%, 0.01"},
         {"faults: {drop: -1}", "4:16: faults.drop: '-1' is not a probability, allowed: 0 to 1, as in 1%, 0.1%, 0.01"},
         {"faults: {drop: 101%}",
          "4:16: faults.drop: '101%' is not a probability, allowed: 0 to 1, as in 1%, 0.1%, 0.01"},
         {"faults: {drop: {}}",
          "4:16: faults.drop: a map where a probability should be, allowed: 0 to 1, as in 1%, 0.1%, 0.01"},
         {"faults: {delay_time: 2s}",
          "4:22: faults.delay_time: '2s' is out of range, allowed: 10us to 1s, with a unit: us, ms, s, min, h"},
         {"faults: {seed: -1}", "4:16: faults.seed: '-1' is not a whole number, allowed: 0 to 18446744073709551615"}});
  for (const char* wrong : {"1.", ".5", "1e-3", "nan", "inf", "%", "1 %", "1%%", "0x1", "0,5", "1.1", "''", "1.0.0"}) {
    const std::string fault = fault_of(std::string(kNodes) + kPorts + "faults: {drop: \"" + wrong + "\"}");
    EXPECT_TRUE(fault.ends_with("is not a probability, allowed: 0 to 1, as in 1%, 0.1%, 0.01"))
        << wrong << ": " << fault;
  }
  EXPECT_EQ(fault_of(std::string(kNodes) + kPorts + "faults: {drop: 100%, delay: 1, reorder: 60%}"), "");
}

TEST(Faults, Workers) {
  check(std::string(kNodes) + kPorts,
        {{"workers: {lanes: 17}", "4:18: workers.lanes: '17' is out of range, allowed: 1 to 16"},
         {"workers: {threads: 3, lanes: 2}",
          "4:20: workers.threads: 3 threads for 2 lanes, allowed: 1 to the number of lanes"},
         {"workers: {threads: 3, lanes: 99}", "4:30: workers.lanes: '99' is out of range, allowed: 1 to 16"},
         {"workers: {cores: [1, 2]}", "4:18: workers.cores: 2 cores for 1 threads, allowed: one per thread, or none"}});
}

TEST(Faults, Tos) {
  check(std::string(kNodes) + kPorts,
        {{"tos: {raw: 0x21}", "4:12: tos.raw: 0x21 has ECN bits set, the two lowest, allowed: multiples of 4"},
         {"tos: {raw: 256}", "4:12: tos.raw: '256' is out of range, allowed: 0 to 255"},
         {"tos: {raw: 0x28}", "4:12: tos.raw: 0x28 is already used by compressed, allowed: different ones"},
         {"tos: {compressed: 0xc0}", "4:6: tos: 0xc0 is already used by compressed, allowed: different ones"}});
}

TEST(Faults, Codec) {
  const std::string fault = fault_of(std::string(kNodes) + kPorts + "codec: fixed:31");
  EXPECT_TRUE(fault.starts_with("n.yaml:4:8: codec: codec 'fixed:31': B must be 1 to 30, not '31'\nusage:\n")) << fault;
}

TEST(Faults, Nodes) {
  check(
      "rank: 0\n",
      {{"nodes: []", "2:8: nodes: 0 nodes, allowed: 1 to 256"},
       {"nodes: 2", "2:8: nodes: '2' where a list should be, allowed: [...] of nodes {rank: ..., ip: ...}"},
       {"nodes: [1]", "2:9: nodes[0]: '1' where a map should be, allowed: keys rank, ip, udp_port, mac, host"},
       {"nodes: [{rank: 0, ip: 10.0.0.1}, {rank: 0, ip: 10.0.0.2}]",
        "2:41: nodes[1].rank: rank 0 is already used by nodes[0].rank, allowed: different ones"},
       {"nodes: [{rank: 0, ip: 10.0.0.1}, {rank: 2, ip: 10.0.0.2}]",
        "2:41: nodes[1].rank: '2' is out of range, allowed: 0 to 1"},
       {"nodes:\n- {rank: 0, ip: 10.0.0.1}\n- {rank: 1, ip: 10.0.0.1}",
        "4:17: nodes[1].ip: 10.0.0.1 is already used by nodes[0].ip, allowed: different ones; or with sockets, a "
        "`udp_port` for each, 1 apart"},
       {"nodes: [{rank: 0, ip: 10.0.0}]",
        "2:23: nodes[0].ip: '10.0.0' is not an IPv4 address, allowed: the address of a host, as in 10.77.0.1"},
       {"nodes: [{rank: 0, ip: 10.0.0.256}]",
        "2:23: nodes[0].ip: '10.0.0.256' is not an IPv4 address, allowed: the address of a host, as in 10.77.0.1"},
       {"nodes: [{rank: 0, ip: 10.0.0.010}]",
        "2:23: nodes[0].ip: '10.0.0.010' is not an IPv4 address, allowed: the address of a host, as in 10.77.0.1"},
       {"nodes: [{rank: 0, ip: 224.0.0.1}]",
        "2:23: nodes[0].ip: '224.0.0.1' is not the address of a host, allowed: the address of a host, as in 10.77.0.1"},
       {"nodes: [{rank: 0, ip: 1.1.1.1, mac: 02:00:00:00:00}]",
        "2:37: nodes[0].mac: '02:00:00:00:00' is not a MAC address, allowed: the address of a host, as in "
        "\"02:00:00:00:00:01\""},
       {"nodes: [{rank: 0, ip: 1.1.1.1, mac: 03:00:00:00:00:01}]",
        "2:37: nodes[0].mac: '03:00:00:00:00:01' is not the address of a host, allowed: the address of a host, as in "
        "\"02:00:00:00:00:01\""}});
  check("",
        {{"rank: 1\nnodes: [{rank: 0, ip: 1.1.1.1}]", "1:7: rank: 1 is not in the table of nodes, allowed: 0 to 0"}});
}

TEST(Faults, World) {
  std::string text = "rank: 0\ntrainers: 16\nports: [{device: net_tap0}]\nnodes:\n";
  for (int i = 0; i < 17; ++i) {
    text += "- {rank: " + std::to_string(i) + ", ip: 10.0.0." + std::to_string(i + 1) + "}\n";
  }
  EXPECT_EQ(fault_of(text), "n.yaml:2:11: trainers: 17 nodes with 16 trainers each are 272 ranks, allowed: up to 256");
  EXPECT_EQ(fault_of(text + "local_reduce: true"), "");
  EXPECT_EQ(fault_of(text + "local_reduce: true\ncodec: exact"),
            "n.yaml:23:8: codec: exact would round sums twice, because `local_reduce` adds up the trainers of a node "
            "first, allowed: another codec, or `local_reduce: false`");
}

TEST(Faults, Ports) {
  const char* const no_way = "3:8: ports: no port reaches node 0, allowed: one for each neighbour in the ring";
  check(kNodes,
        {{"ports: []", "3:8: ports: no port reaches node 0, allowed: one for each neighbour in the ring"},
         {"ports: [{device: net_tap0, nodes: [2]}]", no_way},
         {"ports: [{device: net_tap0, nodes: []}]",
          "3:35: ports[0].nodes: the port reaches no node, allowed: ranks; or leave `nodes` out to reach all other "
          "nodes"},
         {"ports: [{device: net_tap0, nodes: [1]}]",
          "3:36: ports[0].nodes[0]: 1 is this node itself, allowed: ranks of other nodes"},
         {"ports: [{device: net_tap0, nodes: [3]}]", "3:36: ports[0].nodes[0]: '3' is out of range, allowed: 0 to 2"},
         {"ports: [{device: net_tap0}, {device: net_tap1, nodes: [2]}]",
          "3:56: ports[1].nodes[0]: node 2 is reached through ports[0] already, allowed: one port for each node"},
         {"ports: [{device: net_tap0, nodes: [2]}, {device: net_tap1}]",
          "3:41: ports[1]: node 2 is reached through ports[0] already, allowed: one port for each node"},
         {"ports: [{device: net_tap0, nodes: [0, 0]}]",
          "3:39: ports[0].nodes[1]: node 0 is reached through ports[0] already, allowed: one port for each node"},
         {"ports: [{device: net_tap0, name: a, nodes: [0]}, {device: net_tap1, name: a, nodes: [2]}]",
          "3:75: ports[1].name: the name 'a' is already used by ports[0], allowed: different ones"},
         {"ports: [{device: net_tap0, name: e1, nodes: [0]}, {device: net_tap1, nodes: [2]}]",
          "3:51: ports[1]: the name 'e1' is already used by ports[0], allowed: different ones"},
         {"ports: [{device: net_tap0, name: a b}]",
          "3:34: ports[0].name: 'a b' is not a name, allowed: 1 to 31 letters, digits, '_', '-' and '.'"},
         {"ports: [{device: net_tap0, ring: x}]",
          "3:34: ports[0].ring: a port has one device, and this one already has ports[0].device, allowed: one of "
          "device, pci, ring, udp"},
         {"ports: [{ring: x}]",
          "3:9: ports[0]: an in-process link can reach one node, but reaches 2 nodes here, allowed: nodes: [RANK]"},
         {"ports: [{ring: x, nodes: [0]}, {ring: x, nodes: [2]}]",
          "3:39: ports[1].ring: the device 'x' is already used by ports[0], allowed: different ones"}});
}

TEST(Faults, Devices) {
  check(kNodes,
        {{"ports: [{device: 0000:03:00.0}]",
          "3:18: ports[0].device: '0000:03:00.0' is a PCI address, allowed: key 'pci' for it"},
         {"ports: [{device: eth0-1}]",
          "3:18: ports[0].device: 'eth0-1' is not a DPDK device, allowed: net_af_packet0,iface=eth0-1,qdisc_bypass=0 "
          "for an interface of that name; docs/configuration.md has others"},
         {"ports: [{device: eth1}]",
          "3:18: ports[0].device: 'eth1' is not a DPDK device, allowed: net_af_packet0,iface=eth1,qdisc_bypass=0 for "
          "an interface of that name; docs/configuration.md has others"},
         {"ports: [{device: net_afpacket0}]",
          "3:18: ports[0].device: 'net_afpacket0' is not a DPDK device, allowed: as in net_memif0,role=server,..."},
         {"ports: [{device: \"afpacket,iface=eth1\"}]",
          "3:18: ports[0].device: 'afpacket' is not a DPDK device, allowed: as in net_memif0,role=server,..."},
         {"ports: [{pci: eth0}]", "3:15: ports[0].pci: 'eth0' is not a PCI address, allowed: as in 0000:03:00.0"},
         {"ports: [{pci: \"0000:AF:00.0\", nodes: [0]}, {pci: \"af:00.0,x=1\", nodes: [2]}]",
          "3:50: ports[1].pci: the device '0000:af:00.0' is already used by ports[0], allowed: different ones"},
         {"ports: [{device: \"net_memif0,role=server\"}]\nmtu: 9000",
          "3:18: ports[0].device: frames of this MTU have up to 9014 bytes, but memif's buffers have 2048: they would "
          "overwrite each other; allowed: bsize=9014 and more, best bsize=9216"},
         {"ports: [{device: \"net_memif0,bsize=16384\"}]\nmtu: 9001",
          "4:6: mtu: 9001 needs `udp` ports, allowed: 576 to 9000"},
         {"ports: [{device: \"net_memif0,bsize=9216x\"}]\nmtu: 9000",
          "3:18: ports[0].device: bsize=9216x is not a whole number, allowed: digits only"},
         {"ports: [{device: \"net_af_packet0,iface=a,framesz=4k\"}]",
          "3:18: ports[0].device: framesz=4k is not a whole number, allowed: digits only"},
         {"ports: [{device: net_af_packet0}]",
          "3:18: ports[0].device: AF_PACKET needs a network interface; allowed: iface=NAME"},
         {"ports: [{device: \"net_af_packet0,iface=a,framesz=1024\"}]",
          "3:18: ports[0].device: frames of this MTU have up to 1514 bytes, and AF_PACKET cuts off what is beyond "
          "framesz - 66; allowed: framesz=1580 and more, best framesz=9216,blocksz=36864"},
         {"ports: [{device: \"net_af_packet0,iface=a,qpairs=2\"}]",
          "3:18: ports[0].device: qpairs=2, but workers.lanes is 1; allowed: qpairs=1 to 1"},
         {"ports: [{device: \"net_af_xdp0,iface=a,queue_count=3\"}]\nworkers: {lanes: 2}",
          "3:18: ports[0].device: queue_count=3, but workers.lanes is 2; allowed: queue_count=1 to 2"},
         {"ports: [{device: \"net_af_packet0,iface=a,framesz=3072\"}]",
          "3:18: ports[0].device: framesz=3072 does not divide blocksz=4096, and AF_PACKET would hang; allowed: a "
          "blocksz of 3072, or a multiple of it"}});
  const std::string nodes = kNodes;
  EXPECT_EQ(fault_of(nodes + "mtu: 9000\nports: [{device: \"net_memif0,bsize=9216\"}]"), "");
  EXPECT_EQ(fault_of(nodes + "mtu: 16384\nports: [{udp: any}]"), "");
  EXPECT_EQ(fault_of(nodes + "mtu: 9000\nports: [{device: \"net_af_packet0,iface=a,framesz=16384,blocksz=65536\"}]"),
            "");
}

TEST(Faults, Yaml) {
  check("", {{"", "1:1: the file sets nothing, needed: rank and nodes"},
             {"# nothing\n", "1:1: the file sets nothing, needed: rank and nodes"},
             {"--- ~\n", "1:5: the file sets nothing, needed: rank and nodes"},
             {"rank: 0\n nodes: 1", "2:7: not YAML: illegal map value"},
             {"rank: 'a", "1:9: not YAML: illegal EOF in scalar"},
             {"rank:\n\t- a", "2:2: not YAML: illegal block entry"},
             {"rank: {a: 1", "1:1: not YAML: end of map flow not found"},
             {"rank: \"\\q\"", "1:10: not YAML: unknown escape character: q"},
             {"rank: *a", "1:7: not YAML: the referenced anchor is not defined"},
             {"rank: &a [*a]", "1:11: aliases (*name) are not supported: write the value here"},
             {"rank: !!int 1", "1:7: tags (!name) are not supported: leave it out"},
             {"rank: !x [1]", "1:7: tags (!name) are not supported: leave it out"},
             {"? [a]\n: 1", "1:3: no text where a key should be; is every bracket closed?"},
             {"rank: 0\n---\nrank: 1", "2:1: a second document begins, allowed: one in a file"},
             {"%YAML 9.0\n---\nrank: 1", "1:1: not YAML: YAML major version too large"},
             {"rank: 0 \x04", "1:9: byte 0x04 where text should be, allowed: UTF-8"},
             {"rank: 0\n\xff\xfe", "2:1: byte 0xff where text should be, allowed: UTF-8"},
             {"a: [[[[[[[[1]]]]]]]]", "1:11: lists and maps are nested too deeply, allowed: 8 levels"}});
  EXPECT_EQ(fault_of(std::string_view("rank: \0", 7)), "n.yaml:1:7: byte 0x00 where text should be, allowed: UTF-8");
  EXPECT_EQ(fault_of("[1]"), "n.yaml:1:1: a list where a map should be, allowed: keys " + std::string(kRootKeys));
  EXPECT_EQ(fault_of("text"), "n.yaml:1:1: 'text' where a map should be, allowed: keys " + std::string(kRootKeys));
}

TEST(Faults, TheFirstOneIsTold) {
  check(kNodes, {{"mtu: 1\nlog: x\nports: 3", "3:6: mtu: '1' is out of range, allowed: 576 to 16384"},
                 {"log: x\nmtu: 1\nports: 3", "3:6: log: 'x' is unknown, allowed: trace, debug, info, warn, error"}});
}

// Huge texts of nested brackets or other repeated parts give an error, and no stack overflow.
TEST(Faults, HugeTexts) {
  for (const char* part :
       {"[",      "{",     "- ",  "? ",  "a: ", "[a, ", "{a: ", "&a ", "!a ", "\"", "'",   "|\n",   "#",  "%",    "a\n",
        "a: 1\n", "- [\n", "{? ", "[? ", ",",   "]",    ":",    "\n",  " ",   "\t", "*a ", "---\n", "\r", "- a\n"}) {
    std::string text;
    while (text.size() < rounds(kMaxConfigBytes / 8)) text += part;
    EXPECT_TRUE(fault_of(text).starts_with("n.yaml:")) << part;
  }
  EXPECT_EQ(fault_of(std::string(kMaxConfigBytes + 1, '#')), "n.yaml: the file is too long, allowed: 1048576 bytes");
}

TEST(Faults, FilesThatCannotBeRead) {
  const auto fault = [](const char* path) -> std::string {
    try {
      (void)load_any_config(path);
    } catch (const SetupError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(fault("/nonexistent/n.yaml"),
            "/nonexistent/n.yaml: cannot read the configuration: No such file or directory");
  EXPECT_EQ(fault("/"), "/: cannot read the configuration: it is not a regular file; put the text into one");
  EXPECT_EQ(fault("/dev/zero"),
            "/dev/zero: cannot read the configuration: it is not a regular file; put the text into one");
  // A pipe without a writer must not stop a daemon's start.
  const std::filesystem::path pipe = std::filesystem::path(testing::TempDir()) / "gradlane-config-pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(fault(pipe.c_str()),
            pipe.string() + ": cannot read the configuration: it is not a regular file; put the text into one");
  EXPECT_THROW((void)load_calibration(pipe), SetupError);
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace gradlane::test::faults_test
