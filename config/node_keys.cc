// node_keys.cc - the keys of a node's file, one row each (set-up only)
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "config/addresses.h"
#include "config/common_sections.h"
#include "config/key_types.h"
#include "config/loader.h"
#include "config/strategies.h"
#include "config/words.h"

namespace gradlane {
namespace {

std::string mac_entry(const std::optional<MacAddress>& mac) {
  return mac ? fmt::format(", mac: {}", in_quotes(mac_text(*mac))) : "";
}

// IPv6 addresses are in quotes, because colons may mean something else to YAML.
std::string ip_entry(const NodeAddress& node) {
  const std::string text = ip_text(address_of(node));
  return ipv4_of(address_of(node)) ? text : in_quotes(text);
}

std::string nodes_text(const NodeConfig& config) {
  std::string text;
  for (const NodeAddress& node : config.nodes) {
    const std::string host = node.host.empty() ? "" : fmt::format(", host: {}", in_quotes(node.host));
    const std::string port = node.udp_port ? fmt::format(", udp_port: {}", *node.udp_port) : "";
    text += fmt::format("\n  - {{rank: {}, ip: {}{}{}{}}}", node.rank, ip_entry(node), port, mac_entry(node.mac), host);
  }
  return text;
}

std::string ports_text(const NodeConfig& config) {
  if (config.ports.empty()) return "[]";
  std::string text;
  for (const PortConfig& port : config.ports) {
    text += fmt::format("\n  - name: {}\n    {}", in_quotes(port.name), device_text(port));
    if (!port.nodes.empty()) text += fmt::format("\n    nodes: [{}]", fmt::join(port.nodes, ", "));
    if (port.mac) text += fmt::format("\n    mac: {}", in_quotes(mac_text(*port.mac)));
  }
  return text;
}

// Names are in quotes, because commas may be part of a name.
std::string strategies_text(const NodeConfig& config) {
  std::vector<std::string> names = strategy_names(config.strategies);
  for (std::string& it : names) it = in_quotes(it);
  return fmt::format("[{}]", fmt::join(names, ", "));
}

std::vector<ConfigKey<NodeConfig>> make_node_keys() {
  using C = NodeConfig;
  std::vector<ConfigKey<C>> keys = {
      other_key<C>(
          "", "mode", [](const C&) { return std::string("node"); }, "`node`", "`node`, `accelerator`", kAnyNode,
          "what this file configures"),
      other_key<C>(
          "", "rank", [](const C& of) { return fmt::format("{}", of.rank); }, "`auto`", "a rank of `nodes`, `auto`",
          kAnyNode, "rank of this node; `auto`: [the daemon finds it](#one-file-for-all-nodes)"),
      other_key<C>("", "nodes", nodes_text, "none, must be given", "1 to 256 nodes", kSameOnAll,
                   "all nodes of the ring, in any order"),
      other_key<C>("nodes[]", "rank", nullptr, "none, must be given", "each of 0 to n - 1 once", kSameOnAll,
                   "place in the ring"),
      other_key<C>(
          "nodes[]", "ip", nullptr, "none, must be given", "IPv4 address of a host; with sockets IPv6, too", kSameOnAll,
          "gradlane's own address, which the kernel must not have; with sockets [the kernel's](#addresses-of-sockets)"),
      other_key<C>("nodes[]", "udp_port", nullptr, "`udp_port`", "1 to 65535", kSameOnAll,
                   "with sockets: the first UDP port of this node"),
      other_key<C>("nodes[]", "host", nullptr, "none", "name or IPv4 address", kAnyNode,
                   "name or address of the machine itself, not gradlane's: `rank: auto` finds the rank by it, and "
                   "`gradlane top` asks there for [`metrics`](top.md#other-machines) if `ip` is not the kernel's"),
      other_key<C>("nodes[]", "mac", nullptr, "found by ARP", "`\"02:00:00:00:00:01\"`", kAnyNode,
                   "MAC address to which packets for this node are sent; the router's if there is a router in between"),
      whole_key<C, 1, kMaxTrainers, &C::trainers>("", "trainers", kSameOnAll, "trainers on each node"),
      flag_key<C, &C::local_reduce>("", "local_reduce", kSameOnAll,
                                    "add up the tensors of a node's trainers first, so that they are one rank of the "
                                    "ring ([client.md](client.md#several-trainers-on-a-node))"),
      other_key<C>(
          "", "socket", [](const C& of) { return in_quotes(of.socket); }, "`/run/gradlane/node<rank>.sock`",
          "up to 107 bytes", kAnyNode, "Unix socket where trainers connect; made by the daemon"),
      other_key<C>(
          "", "admin", [](const C& of) { return in_quotes(of.admin); },
          "path of `socket`, with `.admin` in place of `.sock` at its end, or added", "up to 107 bytes, not `socket`",
          kAnyNode, "Unix socket for `gradlane stats` and `gradlane check`; made by the daemon"),
      other_key<C>(
          "", "codec", [](const C& of) { return of.auto_codec.empty() ? of.codec.name() : of.auto_codec; }, "`raw`",
          "[codecs.md](codecs.md), or `auto`, `auto:2^-B`, `auto:rel=B`: [chosen](plan.md#auto)", kSameOnAll,
          "codec of fp32 sums that name none; exact, unless you name a lossy codec or a bound here"),
      other_key<C>(
          "", "strategies", strategies_text, "`[ring]`",
          "1 to 5 of `ring`, `direct`, `rings:G`, `aggregator:R`, `aggregator:R,stream`", kSameOnAll,
          "strategies that operations may name; operations that name none use the first one, see [below](#strategies)"),
      other_key<C>(
          "", "strategy", [](const C& of) { return std::string(of.auto_strategy ? "auto" : ""); }, "", "`auto`",
          kSameOnAll, "operations that name no strategy use the one that [proves](plan.md#auto) to be the fastest"),
      other_key<C>(
          "", "calibration", [](const C& of) { return path_text(of.calibration); }, "", "path", kAnyNode,
          "[figures](plan.md#calibrations) of this host, which `auto` uses to predict times; refused if they are too "
          "old or of another host"),
      other_key<C>(
          "", "plan", [](const C& of) { return path_text(of.plan_file); }, "", "path", "compared by `auto`",
          "[what `auto` chooses](plan.md#auto) instead of trials; errors name file and line. If neither `codec` nor "
          "`strategy` is `auto`, only calls that name `auto` use the plan, and the daemon warns"),
      whole_key<C, kMinIpMtu, kMaxIpMtu, &C::mtu>(
          "", "mtu", kSameOnAll,
          "longest IP packet in bytes, including its header; IP and UDP headers take 28 bytes of it, with IPv6 48"),
      whole_key<C, 1, kMaxUdpPort, &C::udp_port>("", "udp_port", kSameOnAll, "first of `lanes` * `trainers` UDP ports"),
      tos_key<C, &C::tos_compressed>("compressed", kSameOnAll, "multiples of 4 up to `0xfc`, all three different",
                                     "ToS byte of packets with compressed gradients"),
      tos_key<C, &C::tos_raw>("raw", kSameOnAll, "", "ToS byte of packets with uncompressed gradients"),
      tos_key<C, &C::tos_control>("control", kSameOnAll, "",
                                  "ToS byte of control packets, which keep the ring together"),
      other_key<C>("", "ports", ports_text, "none; needed unless there is only one node", "up to 16 ports", kAnyNode,
                   "network devices, see [below](#ports)"),
      whole_key<C, 1, kMaxLanes, &C::lanes>("workers", "lanes", kSameOnAll,
                                            "queues of each port; every tensor is divided among them"),
      whole_key<C, 1, kMaxLanes, &C::threads>("workers", "threads", kAnyNode, "threads that poll the lanes")
          .with_allowed("1 to `lanes`"),
      other_key<C>(
          "workers", "cores", [](const C& of) { return fmt::format("[{}]", fmt::join(of.cores, ", ")); }, "`[]`",
          "one CPU per thread, 0 to 1023", kAnyNode, "pins the threads; `[]`: the scheduler chooses"),
      other_key<C>(
          "workers", "idle", [](const C& of) { return std::string(kIdleWords[static_cast<size_t>(of.idle)]); },
          "`adaptive`", "`spin`, `yield`, `adaptive`", kAnyNode,
          "while no packets arrive: keep polling (`spin`), leave the CPU to others after each poll (`yield`), or do "
          "that and then sleep (`adaptive`)"),
      flag_key<C, &C::hugepages>("memory", "hugepages", kAnyNode, "packet buffers in hugepages"),
      size_key<C, kMiB, kMiB << 20, &C::trainer_memory>("memory", "per_trainer", kAnyNode,
                                                        "most memory that a trainer may share with the daemon"),
      whole_key<C, settings::kWindow.least, settings::kWindow.most, &C::window>(
          "exchange", "window", kAnyNode,
          "packets in flight to a neighbour; with sockets fewer, if the kernel allows less buffer memory "
          "(`net.core.rmem_max`)")
          .with_allowed("powers of two, 2 to 4096"),
      whole_key<C, settings::kOperations.least, settings::kOperations.most, &C::operations>(
          "exchange", "operations", kAnyNode,
          "operations in flight on a lane; four times as many, but at most 256, with operations of up to [16 "
          "KiB](exchange.md#many-small-operations)"),
      size_key<C, settings::kMaxTensor.least, settings::kMaxTensor.most, &C::max_tensor>(
          "exchange", "max_tensor", "from `64MiB` on no, below yes",
          "largest tensor that is one operation; longer ones are [divided](client.md#the-operations). Each of "
          "`operations` needs 1/512 of it as memory"),
      whole_key<C, settings::kQueueTarget.least, settings::kQueueTarget.most, &C::queue_target>(
          "exchange", "queue_target", kAnyNode, "packets that may wait in queues of the network")
          .with_default("16; with ports of kind `udp` 64"),
      duration_key<C, settings::kPeerTimeout.least, settings::kPeerTimeout.most, &C::peer_timeout>(
          "timeouts", "peer", kAnyNode, "time from a node's last packet to the failure of all operations on all nodes"),
      duration_key<C, settings::kStartTimeout.least, settings::kStartTimeout.most, &C::start_timeout>(
          "timeouts", "start", kAnyNode,
          "how long an operation waits for the ring to come up, if its trainer names [no "
          "limit](client.md#time-limits)"),
      duration_key<C, settings::kOperationTimeout.least, settings::kOperationTimeout.most, &C::operation_timeout>(
          "timeouts", "operation", kAnyNode,
          "time from an operation's start to its failure, if its trainer names no limit"),
      duration_key<C, 0, 3600 * kSecond, &C::shutdown_timeout>(
          "timeouts", "shutdown", kAnyNode, "how long operations in flight may take to end after SIGTERM"),
      duration_key<C, settings::kMinRto.least, settings::kMinRto.most, &C::min_rto>(
          "timeouts", "min_rto", kAnyNode, "shortest time after which a packet is sent again"),
      other_key<C>(
          "auth", "key_file", [](const C& of) { return path_text(of.key_file); }, "none: packets are not authenticated",
          "path", "the key in the file; not checked",
          "key of the ring: packets made with another one, or with none, are refused; see [security.md](security.md)"),
      other_key<C>(
          "", "user", [](const C& of) { return path_text(of.user); }, "none: its user stays the same", "name of a user",
          kAnyNode,
          "user that the daemon changes to when it has opened its devices and sockets ([what that "
          "changes](security.md#on-the-machine)); checked at the start"),
  };
  std::ranges::move(fault_keys<C>(), std::back_inserter(keys));
  std::vector<ConfigKey<C>> rest = {

      other_key<C>(
          "", "metrics", [](const C& of) { return of.metrics ? in_quotes(address_text(*of.metrics)) : std::string(); },
          "off", "`ADDRESS:PORT`, `\"[IPV6]:PORT\"`, `node:PORT`", kAnyNode,
          "address for HTTP requests of [Prometheus](metrics.md), and of [`gradlane top`](top.md#other-machines) on "
          "other machines; `node`: this node's address in `nodes`, with ports of kind `udp`"),
      flag_key<C, &C::telemetry>("", "telemetry", kAnyNode, "has no effect, and will be refused by 0.3; use `metrics`"),
      other_key<C>(
          "", "log", [](const C& of) { return of.log; }, "`info`", "`trace`, `debug`, `info`, `warn`, `error`",
          kAnyNode, "which messages are logged: this level and more severe ones"),
      other_key<C>(
          "", "log_file", [](const C& of) { return path_text(of.log_file); }, "none: standard error", "path", kAnyNode,
          "file to which the log is appended, and everything else that would go to standard error; "
          "[SIGHUP](daemon.md#the-log) reopens it"),
  };
  std::ranges::move(rest, std::back_inserter(keys));
  return keys;
}

}  // namespace

std::span<const ConfigKey<NodeConfig>> node_keys() {
  static const std::vector<ConfigKey<NodeConfig>> keys = make_node_keys();
  return keys;
}

std::string config_text(const NodeConfig& config) { return text_of(node_keys(), config); }

}  // namespace gradlane
