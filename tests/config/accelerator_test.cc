// accelerator_test.cc - tests of accelerators' configuration files: defaults, every key, writing them as text, faults
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "config/accelerator.h"
#include "config/loader.h"
#include "tests/config/same_config.h"

namespace gradlane::test::accelerator_test {
namespace {

// Lines 1 to 3 of a file. The text of a row begins in line 4.
constexpr const char* kLeast =
    "mode: accelerator\nhost: {device: \"net_af_packet0,iface=gla0,qdisc_bypass=0\"}\n"
    "wire: {device: \"net_af_packet1,iface=eth1,qdisc_bypass=0\"}\n";

constexpr const char* kEveryKey = R"(
log: trace
admin: /tmp/with space/"accelerator" \2.admin
containment: false
user: grad-lane_1
faults: {drop: 1%, duplicate: 0.1%, reorder: 0.02, corrupt: 1, delay: 12.5%, delay_time: 3ms, seed: 0xffffffffffffffff}
worker: {core: 3, idle: spin}
memory: {records: 3MiB, hugepages: true}
connections: 100
repack: {enabled: false, hold: 7us}
udp_port: 0x4000
tos: {compressed: 0x48, wire: 68}
mtu: 9000
codec: inceptionn:8
wire: {pci: "0000:AF:1f.7,arg=1"}
host: {interface: lane0, device: "net_tap0,iface=gl 0"}
mode: accelerator
)";

constexpr const char* kSuperpackets =
    "mode: accelerator\nhost: {device: \"net_af_packet0,iface=gla0\", superpackets: true}\nwire: {pci: 03:00.0}\n";

AcceleratorConfig parse(const std::string& text) {
  return std::get<AcceleratorConfig>(parse_any_config(text, "n.yaml"));
}

TEST(Accelerator, DefaultsAreThoseOfTheStruct) {
  AcceleratorConfig want;
  want.host = {.name = "host", .device = "net_af_packet0,iface=gla0,qdisc_bypass=0", .nodes = {}, .mac = {}};
  want.wire = {.name = "wire", .device = "net_af_packet1,iface=eth1,qdisc_bypass=0", .nodes = {}, .mac = {}};
  const AcceleratorConfig config = parse(kLeast);
  EXPECT_TRUE(same(config, want)) << config_text(config);
  EXPECT_EQ(config.file, "n.yaml");
  EXPECT_EQ(config.codec.name(), "fixed:10");
  EXPECT_EQ(config.tos_compressed, 0x28);
  EXPECT_EQ(config.tos_wire, 0x30);
}

TEST(Accelerator, EveryKeyIsRead) {
  const AcceleratorConfig config = parse(kEveryKey);
  EXPECT_EQ(config.host.device, "net_tap0,iface=gl 0");
  EXPECT_EQ(config.host.kind, PortConfig::Kind::kDevice);
  EXPECT_EQ(config.interface, "lane0");
  EXPECT_EQ(config.wire.device, "0000:AF:1f.7,arg=1");
  EXPECT_EQ(config.wire.kind, PortConfig::Kind::kPci);
  EXPECT_EQ(config.codec.name(), "inceptionn:8");
  EXPECT_EQ(config.mtu, 9000u);
  EXPECT_EQ(config.tos_compressed, 0x48);
  EXPECT_EQ(config.tos_wire, 68);
  EXPECT_EQ(config.udp_port, 0x4000);
  EXPECT_FALSE(config.repack);
  EXPECT_EQ(config.repack_hold, 7 * kMicrosecond);
  EXPECT_EQ(config.connections, 100u);
  EXPECT_EQ(config.memory, size_t{3} << 20);
  EXPECT_TRUE(config.hugepages);
  EXPECT_EQ(config.core, 3u);
  EXPECT_EQ(config.idle, IdlePolicy::kSpin);
  EXPECT_EQ(fields(config.faults), std::tuple(0.01, 0.001, 0.02, 1.0, 0.125, 3 * kMillisecond, UINT64_MAX));
  EXPECT_EQ(config.user, "grad-lane_1");
  EXPECT_EQ(config.admin, "/tmp/with space/\"accelerator\" \\2.admin");
  EXPECT_EQ(config.log, "trace");
}

TEST(Accelerator, SuperpacketsAreForWhoAsks) {
  EXPECT_FALSE(parse(kLeast).superpackets);
  EXPECT_TRUE(parse(kSuperpackets).superpackets);
}

TEST(Accelerator, TextReadsToTheSame) {
  const std::string least = kLeast;
  for (const std::string& text :
       {least, std::string(kEveryKey), std::string(kSuperpackets), least + "worker: {idle: yield}",
        least + "worker: {core: 0}", least + "repack: {hold: 0s}\nuser: \"true\"",
        least + "codec: \"inceptionn:10,truncate\"\nadmin: \"null\""}) {
    const AcceleratorConfig config = parse(text);
    const std::string written = config_text(config);
    const AcceleratorConfig again = parse(written);
    EXPECT_TRUE(same(again, config)) << written;
    EXPECT_EQ(config_text(again), written);
  }
}

TEST(Mode, IsNodeUnlessTheFileSaysSo) {
  const std::string node = "rank: 0\nnodes: [{rank: 0, ip: 10.0.0.1}]\n";
  const NodeConfig want = parse_config(node, "n.yaml");
  for (const std::string& text : {node, node + "mode: node\n", "mode: 'node'\n" + node, config_text(want)}) {
    const AnyConfig config = parse_any_config(text, "n.yaml");
    ASSERT_TRUE(std::holds_alternative<NodeConfig>(config)) << text;
    EXPECT_TRUE(same(std::get<NodeConfig>(config), want)) << text;
  }
  EXPECT_TRUE(std::holds_alternative<AcceleratorConfig>(parse_any_config(kLeast, "")));
}

// Returns the text of the SetupError, or an empty string if the file is right.
std::string fault_of(std::string_view text) {
  try {
    (void)parse_any_config(text, "n.yaml");
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

struct Row {
  const char* text;
  std::string fault;
};

void check(const std::string& before, std::initializer_list<Row> rows) {
  for (const Row& row : rows) EXPECT_EQ(fault_of(before + row.text), "n.yaml:" + row.fault) << row.text;
}

const std::string kRootKeys =
    "mode, host, wire, codec, mtu, tos, udp_port, repack, connections, memory, worker, faults, user, containment, "
    "admin, log, "
    "log_file";

TEST(AcceleratorFaults, KeysOfTheOtherModeAreNamedAsSuch) {
  const std::string foreign = ": is a key of `mode: node`, but this is an accelerator's file, allowed: " + kRootKeys;
  check(kLeast,
        {{"rank: 0", "4:1: rank" + foreign},
         {"nodes: []", "4:1: nodes" + foreign},
         {"ports: []", "4:1: ports" + foreign},
         {"socket: x", "4:1: socket" + foreign},
         {"auth: {}", "4:1: auth" + foreign},
         {"telemetry: true", "4:1: telemetry" + foreign},
         {"workers: {}", "4:1: workers: unknown key, did you mean 'worker'? allowed: " + kRootKeys},
         {"colour: 1", "4:1: colour: unknown key, allowed: " + kRootKeys},
         {"mode: accelerator", "4:1: mode: given twice, first in line 1, allowed: once"},
         {"memory: {per_trainer: 1GiB}", "4:10: memory.per_trainer: unknown key, allowed: records, hugepages"}});
  const std::string node = "rank: 0\nnodes: [{rank: 0, ip: 10.0.0.1}]\n";
  for (const char* key : {"host", "wire", "repack", "connections"}) {
    const std::string fault = fault_of(node + key + ": 1");
    EXPECT_TRUE(
        fault.starts_with("n.yaml:3:1: " + std::string(key) +
                          ": is a key of `mode: accelerator`, but this is a node's file, allowed: mode, rank, "))
        << fault;
  }
}

TEST(AcceleratorFaults, ModeIsOneOfTwo) {
  check("", {{"mode: acelerator\nhost: 1", "1:7: mode: 'acelerator' is unknown, allowed: node, accelerator"},
             {"mode: [accelerator]", "1:7: mode: a list where one word should be, allowed: node, accelerator"},
             {"mode: node", "1:1: nodes: is missing, and has no default"},
             {"mode: accelerator", "1:1: host: is missing, and has no default"},
             {"mode: accelerator\nhost: {pci: 03:00.0}", "1:1: wire: is missing, and has no default"}});
  try {
    (void)parse_config(kLeast, "n.yaml");
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_STREQ(error.what(),
                 "n.yaml:1:7: mode: this is an accelerator's file, but a node's file is needed here, allowed: node");
  }
}

TEST(AcceleratorFaults, Ports) {
  check(
      "mode: accelerator\nwire: {pci: 03:00.0}\n",
      {{"host: {}", "3:7: host: has no device, allowed: one of the keys device, pci"},
       {"host: net_tap0",
        "3:7: host: 'net_tap0' where a map should be, allowed: keys device, pci, interface, superpackets"},
       {"host: {ring: x}", "3:8: host.ring: unknown key, allowed: device, pci, interface, superpackets"},
       {"host: {device: 'net_af_packet0,iface=a', interface: a}",
        "3:53: host.interface: 'a' is already the interface of `host`, allowed: the kernel's end of the veth, as in "
        "gl0"},
       {"host: {device: 'net_tap0,iface=a', superpackets: true}",
        "3:50: host.superpackets: superpackets need a packet socket, but the device is 'net_tap0,iface=a', "
        "allowed: false, or a device net_af_packet0,iface=NAME"},
       {"host: {device: 'net_af_packet0,iface=a', interface: a/b}",
        "3:53: host.interface: 'a/b' is not a name of an interface, allowed: as in gl0"},
       {"host: {device: net_null0, pci: 04:00.0}",
        "3:32: host.pci: a port has one device, and this one already has host.device, allowed: one of device, pci"},
       {"host: {device: net_tap0}", "3:16: host.device: its interface needs a name; allowed: iface=NAME"},
       {"host: {device: 'net_af_packet0,iface=a,qpairs=2'}",
        "3:16: host.device: qpairs=2, but an accelerator has one worker; allowed: qpairs=1, or leave it out"},
       {"host: {device: 'net_af_xdp0,iface=a,queue_count=4'}",
        "3:16: host.device: queue_count=4, but an accelerator has one worker; allowed: queue_count=1, or leave it out"},
       {"host: {device: net_af_packet0}",
        "3:16: host.device: AF_PACKET needs a network interface; allowed: iface=NAME"},
       // A frame with a VLAN tag is longer than a node's frame.
       {"host: {device: 'net_af_packet0,iface=a,framesz=1580,blocksz=1580'}",
        "3:16: host.device: frames of this MTU have up to 1518 bytes, and AF_PACKET cuts off what is beyond framesz - "
        "66; allowed: framesz=1584 and more, best framesz=9216,blocksz=36864"},
       {"host: {pci: eth0}", "3:13: host.pci: 'eth0' is not a PCI address, allowed: as in 0000:03:00.0"},
       {"host: {pci: 0000:03:00.0}",
        "2:13: wire.pci: the device '0000:03:00.0' is already that of host, allowed: a different one"}});
  const auto pair = [](const char* host, const char* wire) {
    return fault_of(std::string("mode: accelerator\nhost: {device: '") + host + "'}\nwire: {device: '" + wire + "'}\n");
  };
  EXPECT_EQ(pair("net_af_packet0,iface=a", "net_af_packet0,iface=b"),
            "n.yaml:3:16: wire.device: the device 'net_af_packet0' is already that of host, allowed: a different one");
  EXPECT_EQ(pair("net_af_packet0,iface=a", "net_af_packet1,qdisc_bypass=0,iface=a"),
            "n.yaml:3:16: wire.device: the interface 'a' is already that of host, allowed: a different one");
  EXPECT_EQ(pair("net_tap0,iface=a", "net_af_packet1,iface=a"),
            "n.yaml:3:16: wire.device: the interface 'a' is already that of host, allowed: a different one");
  EXPECT_EQ(pair("net_tap0,iface=a", "net_af_packet1,iface=b"), "");
  EXPECT_EQ(pair("net_virtio_user0,path=/dev/vhost-net,iface=a", "net_af_packet1,iface=b"), "");
}

TEST(AcceleratorFaults, Codecs) {
  const auto refused = [](const std::string& name) {
    return "4:8: codec: an accelerator cannot use codec " + name +
           ", allowed: fixed:B, inceptionn:B, as in "
           "fixed:10";
  };
  check(kLeast, {{"codec: raw", refused("raw")}, {"codec: bf16", refused("bf16")}, {"codec: fp16", refused("fp16")}});
  const std::string unknown = fault_of(std::string(kLeast) + "codec: zip");
  EXPECT_TRUE(unknown.starts_with("n.yaml:4:8: codec: ")) << unknown;
  EXPECT_EQ(fault_of(std::string(kLeast) + "codec: fixed:30"), "");
}

TEST(AcceleratorFaults, Classes) {
  check(kLeast,
        {{"tos: {wire: 0x28}", "4:13: tos.wire: 0x28 is already used by compressed, allowed: different ones"},
         {"tos: {compressed: 0x30}", "4:6: tos: 0x30 is already used by compressed, allowed: different ones"},
         {"tos: {wire: 0x31}", "4:13: tos.wire: 0x31 has ECN bits set, the two lowest, allowed: multiples of 4"},
         {"tos: {compressed: 0}", "4:19: tos.compressed: '0' is out of range, allowed: 4 to 255"},
         {"tos: {raw: 0x20}", "4:7: tos.raw: unknown key, allowed: compressed, wire"}});
}

TEST(AcceleratorFaults, Ranges) {
  check(kLeast,
        {{"mtu: 575", "4:6: mtu: '575' is out of range, allowed: 576 to 9000"},
         {"udp_port: 0", "4:11: udp_port: '0' is out of range, allowed: 1 to 65535"},
         {"connections: 15", "4:14: connections: '15' is out of range, allowed: 16 to 1048576"},
         {"repack: {enabled: yes}", "4:19: repack.enabled: 'yes' is unknown, allowed: false, true"},
         {"repack: {hold: 1001us}",
          "4:16: repack.hold: '1001us' is out of range, allowed: 0s to 1ms, with a unit: us, ms, s, min, h"},
         {"repack: {hold: 20}",
          "4:16: repack.hold: '20' is a duration without a unit, allowed: 0s to 1ms, with a unit: us, ms, s, min, h"},
         {"memory: {records: 1023KiB}",
          "4:19: memory.records: '1023KiB' is out of range, allowed: 1MiB to 16GiB, as in 512, 64KiB, 256MiB, 4GiB"},
         {"worker: {core: 1024}", "4:16: worker.core: '1024' is out of range, allowed: 0 to 1023"},
         {"worker: {core: [1]}", "4:16: worker.core: a list where a whole number should be, allowed: 0 to 1023"},
         {"worker: {idle: sleep}", "4:16: worker.idle: 'sleep' is unknown, allowed: spin, yield, adaptive"},
         {"faults: {drop: 2}", "4:16: faults.drop: '2' is not a probability, allowed: 0 to 1, as in 1%, 0.1%, 0.01"},
         {"admin: \"\"", "4:8: admin: '' has 0 bytes, allowed: 1 to 107 bytes"},
         {"log: loud", "4:6: log: 'loud' is unknown, allowed: trace, debug, info, warn, error"}});
}

}  // namespace
}  // namespace gradlane::test::accelerator_test
