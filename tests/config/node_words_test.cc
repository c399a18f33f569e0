// node_words_test.cc - tests of nodes given on the command line: addresses, rank, the resulting configuration; --set
#include "config/node_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "config/set_option.h"

namespace gradlane::test::node_words_test {
namespace {

using Kind = YamlNode::Kind;

std::string flow(const YamlNode& node) {
  if (node.kind == Kind::kNull) return "null";
  if (node.kind == Kind::kScalar) return node.text;
  std::string text;
  for (size_t i = 0; i < node.items.size(); ++i) {
    text += i == 0 ? "" : ", ";
    if (node.kind == Kind::kMap) text += node.keys[i].text + ": ";
    text += flow(node.items[i]);
  }
  return node.kind == Kind::kMap ? "{" + text + "}" : "[" + text + "]";
}

// A machine with two interfaces, and the names that it can resolve.
struct Machine {
  std::map<std::string, std::vector<std::string>> names = {{"alpha", {"10.0.0.1"}},
                                                           {"beta", {"10.0.0.2", "fd00::2", "10.0.0.2"}},
                                                           {"self", {"127.0.1.1"}},
                                                           {"both", {"127.0.1.1", "10.0.0.1", "fe80::1"}},
                                                           {"two", {"10.0.0.3", "10.0.0.4"}},
                                                           {"six", {"fd00::6", "fe80::6"}},
                                                           {"link", {"fe80::7"}},
                                                           {"localhost", {"::1", "127.0.0.1"}}};
  std::map<std::string, std::string> variables;
  uid_t user = 0;
  std::vector<std::string> open;  // folders where this user can have sockets
  std::vector<std::pair<std::string, size_t>> ips = {{"127.0.0.1", 65536}, {"10.0.0.1", 1400}, {"fd00::2", 9000}};

  [[nodiscard]] HostQueries queries() const {
    const auto find = [this](const std::vector<Host>& hosts) {
      std::vector<FoundHost> found;
      for (const Host& host : hosts) {
        found.push_back({host, {}});
        const auto it = names.find(host.name);
        for (const std::string& ip : it == names.end() ? std::vector{host.name} : it->second) {
          found.back().ips.push_back(parse_address(ip).value());
        }
      }
      return found;
    };
    const auto local = [this] {
      std::vector<LocalIp> here;
      for (const auto& [ip, mtu] : ips) here.push_back({parse_address(ip).value(), "if", mtu});
      return here;
    };
    const auto environment = [this](const char* name) -> std::optional<std::string> {
      const auto it = variables.find(name);
      return it == variables.end() ? std::nullopt : std::optional(it->second);
    };
    const auto holds = [this](const std::string& folder) { return std::ranges::find(open, folder) != open.end(); };
    return {find, local, environment, user, holds};
  }
};

std::string tree(const NodeWords& words, const Machine& machine = {}) {
  try {
    return flow(tree_of(words, machine.queries()).tree.root);
  } catch (const SetupError& error) {
    return error.what();
  }
}

std::string nodes(const std::string& list, const Machine& machine = {}) { return tree({list, {}, {}, {}}, machine); }

constexpr const char* kTwo = "nodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.2}]";
constexpr const char* kUdp = "ports: [{udp: auto}]";

TEST(NodeWords, Trees) {
  const std::string two = std::string("{") + kTwo + ", rank: 0, mtu: 1400, " + kUdp + "}";
  EXPECT_EQ(nodes("10.0.0.1,10.0.0.2"), two);
  EXPECT_EQ(nodes("alpha,beta"), two);
  EXPECT_EQ(nodes("both,beta"), two);
  EXPECT_EQ(nodes("::ffff:10.0.0.1,beta"), two);
  EXPECT_EQ(nodes("six,beta"),
            "{nodes: [{rank: 0, ip: fd00::6}, {rank: 1, ip: fd00::2}], rank: 1, mtu: 1500, ports: [{udp: auto}]}");
  EXPECT_EQ(
      nodes("[fd00:0::2]:19000,[fd00::6]:1"),
      "{nodes: [{rank: 0, ip: fd00::2, udp_port: 19000}, {rank: 1, ip: fd00::6, udp_port: 1}], rank: 0, mtu: 1500, "
      "ports: [{udp: auto}]}");
  EXPECT_EQ(nodes("10.0.0.1"), "{nodes: [{rank: 0, ip: 10.0.0.1}], rank: 0, mtu: 1400}");
  EXPECT_EQ(nodes("localhost"), "{nodes: [{rank: 0, ip: 127.0.0.1}], rank: 0, mtu: 1500}");
}

TEST(NodeWords, Ranks) {
  const std::string say = "; say which node this is with --rank 0 to 1";
  EXPECT_EQ(nodes("10.0.0.3,10.0.0.4:1"),
            "--nodes: none of the nodes is this machine: they are 10.0.0.3, 10.0.0.4, port 1, and it has 10.0.0.1 on "
            "if, fd00::2 on if" +
                say);
  EXPECT_EQ(
      nodes("alpha:1,10.0.0.1:2"),
      "--nodes: several nodes are this machine: rank 0 is alpha (10.0.0.1), port 1, rank 1 is 10.0.0.1, port 2" + say);
  EXPECT_EQ(nodes("127.0.0.1,127.0.0.2"),
            "--nodes: several nodes are this machine: rank 0 is 127.0.0.1, rank 1 is 127.0.0.2" + say);
  EXPECT_EQ(nodes("self,10.0.0.2"),
            "--nodes: self (127.0.1.1) is a loopback address, which other machines cannot reach; allowed: "
            "all nodes on loopback, or none: write its address instead, or change /etc/hosts");
  // If the rank is given, this machine is not searched for among the addresses. The MTU is set only if that rank's
  // address is one of this machine, or all are loopback addresses.
  EXPECT_EQ(tree({"127.0.0.1,127.0.0.2", {}, {}, 1}),
            "{nodes: [{rank: 0, ip: 127.0.0.1}, {rank: 1, ip: 127.0.0.2}], mtu: 16384, ports: [{udp: auto}]}");
  EXPECT_EQ(tree({"10.0.0.1,10.0.0.4", {}, {}, 1}),
            "{nodes: [{rank: 0, ip: 10.0.0.1}, {rank: 1, ip: 10.0.0.4}], ports: [{udp: auto}]}");
  // This machine has none of the addresses, for example because it is behind NAT.
  EXPECT_EQ(tree({"10.0.0.3,10.0.0.4", {}, {}, 1}),
            "{nodes: [{rank: 0, ip: 10.0.0.3}, {rank: 1, ip: 10.0.0.4}], ports: [{udp: any}]}");
  EXPECT_EQ(tree({"10.0.0.3,10.0.0.4", {}, {"rank=1"}, {}}),
            "{nodes: [{rank: 0, ip: 10.0.0.3}, {rank: 1, ip: 10.0.0.4}], rank: 1, ports: [{udp: any}]}");
}

TEST(NodeWords, Addresses) {
  EXPECT_EQ(
      nodes("two,alpha"),
      "--nodes: two has 2 addresses, 10.0.0.3, 10.0.0.4: write the one that the ring should use, on all machines");
  EXPECT_EQ(nodes("alpha,six"),
            "--nodes: the nodes have no kind of address in common, allowed: all IPv4, or all IPv6 (not link-local): "
            "alpha has 10.0.0.1, six has fd00::6, fe80::6");
  EXPECT_TRUE(nodes("link,six").starts_with("--nodes: the nodes have no kind of address in common"));
}

// The rank of mpirun or srun is used where addresses do not say which node this is.
TEST(NodeWords, Launchers) {
  Machine machine;
  machine.variables = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}};
  EXPECT_NE(nodes("127.0.0.1,127.0.0.2", machine).find("rank: 1, "), std::string::npos);
  EXPECT_NE(nodes("10.0.0.3,10.0.0.4", machine).find("rank: 1, ports"), std::string::npos);
  // The node's address wins over the launcher's rank.
  EXPECT_NE(nodes("alpha,beta", machine).find("rank: 0, mtu"), std::string::npos);
  EXPECT_NE(nodes("127.0.0.1,127.0.0.2,127.0.0.3", machine)
                .find("with --rank 0 to 2; the launcher gives it rank 1 of 2 (OMPI_COMM_WORLD_RANK)"),
            std::string::npos);
  // PMIX_RANK comes without the number of processes.
  machine.variables = {{"PMIX_RANK", "1"}};
  EXPECT_NE(nodes("127.0.0.1,127.0.0.2", machine).find("gives it rank 1 of an unknown number (PMIX_RANK)"),
            std::string::npos);
  machine.variables = {{"PMIX_RANK", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  EXPECT_NE(nodes("127.0.0.1,127.0.0.2", machine).find("rank: 0, "), std::string::npos);
  machine.variables = {{"OMPI_COMM_WORLD_RANK", "1"}};
  EXPECT_NE(nodes("127.0.0.1,127.0.0.2", machine).find("unknown number (OMPI_COMM_WORLD_RANK)"), std::string::npos);
  machine.variables = {{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}};
  EXPECT_NE(nodes("127.0.0.1,127.0.0.2", machine).find(" 2 of 2 (PMI_RANK)"), std::string::npos);
  machine.variables = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  EXPECT_NE(nodes("127.0.0.1,127.0.0.2", machine).find("rank: 0, "), std::string::npos);
  // The log names the launcher that gave the rank.
  EXPECT_EQ(tree_of({"127.0.0.1,127.0.0.2", {}, {}, {}}, machine.queries()).launcher, "0 of 2 (SLURM_PROCID)");
  EXPECT_EQ(tree_of({"alpha,beta", {}, {}, {}}, machine.queries()).launcher, "");
  EXPECT_EQ(tree_of({"127.0.0.1,127.0.0.2", {}, {}, 1}, machine.queries()).launcher, "");
}

TEST(NodeWords, Sources) {
  Machine machine;
  EXPECT_EQ(nodes("@slurm", machine),
            "--nodes @slurm: SLURM_JOB_NODELIST is not set: this is not in a SLURM job, or the job's environment was "
            "not passed on");
  machine.variables["SLURM_JOB_NODELIST"] = "n[1";
  EXPECT_TRUE(nodes("@slurm", machine).starts_with("--nodes @slurm: SLURM_JOB_NODELIST: 'n[1' has a '['"));
  machine.variables["SLURM_JOB_NODELIST"] = "alpha,n[3-4]";
  machine.names["n3"] = {"10.0.0.3"};
  machine.names["n4"] = {"10.0.0.4"};
  EXPECT_NE(nodes("@slurm", machine).find("{rank: 2, ip: 10.0.0.4}], rank: 0"), std::string::npos);
  EXPECT_NE(ways_to_start(machine.queries().environment).find("--nodes @slurm"), std::string::npos);
  EXPECT_EQ(ways_to_start(Machine().queries().environment).find("@slurm"), std::string::npos);
  EXPECT_EQ(
      nodes("@mpi"),
      "--nodes @mpi: mpirun does not tell its processes the hosts: name them as for mpirun, --nodes HOST,HOST,... or "
      "--nodes @HOSTFILE");
  EXPECT_EQ(nodes("@mpi:alpha", machine),
            "--nodes @mpi:alpha: mpirun does not tell its processes the hosts: name them as for mpirun, --nodes "
            "HOST,HOST,... or --nodes @HOSTFILE, or because this is a SLURM job, --nodes @slurm");
  EXPECT_EQ(nodes("@/nowhere/h"), "--nodes @/nowhere/h: cannot read /nowhere/h: No such file or directory");
  EXPECT_TRUE(nodes("@/").starts_with("--nodes @/: cannot read /: it is not a regular file"));
  EXPECT_EQ(nodes("@"), "--nodes @: no file name after @, allowed: @FILE, @slurm");
  EXPECT_EQ(nodes(""), "--nodes: no hosts, allowed: HOST,HOST,..., @FILE, @slurm");
}

// Root's folder is the default. A user who cannot create sockets there gets a folder of their own.
TEST(NodeWords, Sockets) {
  Machine machine;
  machine.variables = {{"XDG_RUNTIME_DIR", "/run/user/1000"}};
  const auto socket = [&](std::vector<std::string> settings = {}) {
    const std::string text = tree({"alpha,beta", {}, std::move(settings), 1}, machine);
    const size_t at = text.find("socket: ");
    return at == std::string::npos ? "" : text.substr(at + 8, text.find_first_of(",}", at) - at - 8);
  };
  EXPECT_EQ(socket(), "");
  machine.user = 1000;
  EXPECT_EQ(socket(), "/tmp/gradlane-1000/node1.sock");
  machine.open = {"/run/user/1000/gradlane"};
  EXPECT_EQ(socket(), "/run/user/1000/gradlane/node1.sock");
  EXPECT_EQ(socket({"socket=/x/y.sock"}), "/x/y.sock");
  machine.variables.clear();
  EXPECT_EQ(socket(), "/tmp/gradlane-1000/node1.sock");
  machine.open = {"/run/gradlane"};
  EXPECT_EQ(socket(), "");
}

TEST(NodeWords, Ports) {
  const auto ports = [](std::vector<std::string> specs, std::vector<std::string> settings = {}) {
    const std::string text = tree({"alpha,beta", std::move(specs), std::move(settings), {}});
    const size_t at = text.find("ports: ");
    return text.starts_with('{') ? text.substr(at + 7, text.size() - at - 8) : text;
  };
  EXPECT_EQ(ports({"udp"}), "[{udp: auto}]");
  EXPECT_EQ(ports({"udp: auto"}), "[{udp: auto}]");
  EXPECT_EQ(ports({"af_packet:eth1"}), "[{device: net_af_packet0,iface=eth1,qdisc_bypass=0}]");
  EXPECT_EQ(ports({"af_packet:eth1"}, {"mtu=9000"}),
            "[{device: net_af_packet0,iface=eth1,qdisc_bypass=0,framesz=9216,blocksz=36864}]");
  EXPECT_EQ(ports({"af_xdp:eth1"}), "[{device: net_af_xdp0,iface=eth1,start_queue=0,queue_count=1}]");
  EXPECT_EQ(ports({"0000:03:00.0"}), "[{pci: 0000:03:00.0}]");
  EXPECT_EQ(ports({"pci: 03:00.0,x=1"}), "[{pci: 03:00.0,x=1}]");
  EXPECT_EQ(ports({"net_memif0,role=server"}), "[{device: net_memif0,role=server}]");
  EXPECT_EQ(ports({"{ring: x, nodes: [1]}", "af_packet:e"}),
            "[{ring: x, nodes: [1]}, {device: net_af_packet1,iface=e,qdisc_bypass=0}]");
  EXPECT_EQ(tree({"alpha,beta", {}, {"ports=[{ring: x}]"}, {}}),
            std::string("{") + kTwo + ", ports: [{ring: x}], rank: 0, mtu: 1400}");
  EXPECT_EQ(ports({"udp"}, {"ports=[]"}), "--set ports: --port sets them, too, allowed: one of the two");
  EXPECT_TRUE(ports({""}).starts_with("--port : no port, allowed: udp, "));
  EXPECT_EQ(ports({"{a"}).find("--port {a:1:"), 0U);
}

// A fault that the rules of a configuration file find names the command-line word that caused it.
TEST(NodeWords, FaultsNameWords) {
  const auto fault = [](const NodeWords& words) -> std::string {
    try {
      (void)read_any_config(tree_of(words, Machine().queries()).tree, {.rank = words.rank, .hosts = {}});
    } catch (const SetupError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault({"alpha,beta", {}, {}, {}}), "");
  EXPECT_TRUE(
      fault({"alpha,10.0.0.1", {}, {}, 0}).starts_with("--nodes 10.0.0.1: nodes[1].ip: 10.0.0.1 is already used by"));
  EXPECT_EQ(fault({"alpha,beta", {}, {}, 2}), "--nodes: 2 (--rank) is not in the table of nodes, allowed: 0 to 1");
  EXPECT_TRUE(
      fault({"alpha,beta", {"eth1"}, {}, {}}).starts_with("--port eth1: ports[0].device: 'eth1' is not a DPDK device"));
  EXPECT_TRUE(fault({"alpha,beta", {}, {"timeouts.peer=2"}, {}})
                  .starts_with("--set timeouts.peer=2: timeouts.peer: '2' is a duration without a unit"));
  EXPECT_TRUE(fault({"alpha,beta", {}, {"timeout.peer=2s"}, {}})
                  .starts_with("--set timeout.peer=2s: timeout: unknown key, did you mean 'timeouts'?"));
}

// ---- --set over a file

std::string set(const std::string& file, const std::vector<std::string>& settings) {
  try {
    ConfigTree source{parse_yaml(file, "f.yaml"), "f.yaml", {}};
    apply_settings(source, settings);
    return flow(source.root);
  } catch (const SetupError& error) {
    return error.what();
  }
}

TEST(Settings, OverrideAFile) {
  EXPECT_EQ(set("log: info\n", {"log=warn"}), "{log: warn}");
  EXPECT_EQ(set("log: info\n", {"log=warn", "log=error"}), "{log: error}");
  EXPECT_EQ(set("", {"timeouts.peer=5s", "timeouts.start=1s"}), "{timeouts: {peer: 5s, start: 1s}}");
  EXPECT_EQ(set("a: {b: 1, c: 2}", {"a.c=[x, {y: z}]"}), "{a: {b: 1, c: [x, {y: z}]}}");
  EXPECT_EQ(set("a: {b: 1}", {"a={c: 2}"}), "{a: {c: 2}}");
  EXPECT_EQ(set("p: [{m: 1}, {m: 2}]", {"p[1].m=3=4"}), "{p: [{m: 1}, {m: 3=4}]}");
  EXPECT_EQ(set("a:\n", {"a.b="}), "{a: {b: null}}");
  EXPECT_EQ(set("", {"socket='/tmp/a b'"}), "{socket: /tmp/a b}");
}

TEST(Settings, ThatAreNone) {
  const std::string allowed = ", allowed: KEY=VALUE, as in timeouts.peer=5s";
  EXPECT_EQ(set("", {"log"}), "--set log: there is no '=' in it" + allowed);
  for (const std::string it :
       {"=1", ".a=1", "a.=1", "a[=1", "a[x]=1", "a[0]b=1", "[0]=1", "a]=1", "a[-1]=1", "a[0=1"}) {
    EXPECT_EQ(set("a: [1]", {it}),
              it == "a]=1" ? "{a: [1], a]: 1}" : "--set " + it + ": no key in front of the '='" + allowed);
  }
  EXPECT_EQ(set("", {"a.b.c.d.e.f.g.h=1"}), "--set a.b.c.d.e.f.g.h=1: too many keys" + allowed);
  EXPECT_EQ(set("a: 1", {"a.b=1"}), "--set a.b=1: a has no keys");
  EXPECT_EQ(set("[1]", {"a=1"}), "--set a=1: the configuration has no keys");
  EXPECT_EQ(set("a: 1", {"a[0]=1"}), "--set a[0]=1: a is not a list");
  EXPECT_EQ(set("a: [1]", {"a[1]=1"}), "--set a[1]=1: a has 1 items, counted from 0");
  EXPECT_TRUE(set("", {"a={"}).starts_with("--set a={:1:"));
  EXPECT_TRUE(set("", {"a=!b c"}).starts_with("--set 'a=!b c':1:1: tags")) << set("", {"a=!b c"});
}

}  // namespace
}  // namespace gradlane::test::node_words_test
