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
          "word", "", "mode", [](const C&) { return std::string("node"); }, "`node`", "`node`, `accelerator`", kAnyNode,
          "what this file configures"),
      other_key<C>(
          "number", "", "rank", [](const C& of) { return fmt::format("{}", of.rank); }, "`auto`",
          "a rank of `nodes`, `auto`", kAnyNode,
          "rank of this node; `auto`: the daemon finds it by host name or address"),
      other_key<C>("list", "", "nodes", nodes_text, "none, must be given", "1 to 256 nodes", kSameOnAll,
                   "all nodes of the ring, in any order"),
      other_key<C>("number", "nodes[]", "rank", nullptr, "none, must be given", "each of 0 to n - 1 once", kSameOnAll,
                   "place in the ring"),
      other_key<C>(
          "address", "nodes[]", "ip", nullptr, "none, must be given",
          "IPv4 address; with ports of kind `udp` also IPv6", kSameOnAll,
          "address of the node: the kernel must not have it, but with ports of kind `udp` it is the machine's own"),
      other_key<C>("number", "nodes[]", "udp_port", nullptr, "`udp_port`", "1 to 65535", kSameOnAll,
                   "with ports of kind `udp`: first UDP port of this node"),
      other_key<C>(
          "name", "nodes[]", "host", nullptr, "none", "name or IPv4 address", kAnyNode,
          "name or address that the machine's kernel has: `rank: auto` finds the rank by it, and `gradlane top` asks "
          "there for `metrics` if `ip` is not the kernel's"),
      other_key<C>("address", "nodes[]", "mac", nullptr, "found by ARP", "`\"02:00:00:00:00:01\"`", kAnyNode,
                   "MAC address to which packets for this node are sent; with a router in between, the router's"),
      whole_key<C, 1, kMaxTrainers, &C::trainers>("", "trainers", kSameOnAll,
                                                  "trainers (training processes) on each node"),
      flag_key<C, &C::local_reduce>(
          "", "local_reduce", kSameOnAll,
          "adds up the tensors of a node's trainers first, so that the node is one rank of the "
          "ring"),
      flag_key<C, &C::verify>("", "verify", kAnyNode,
                              "verifies the results of sums by `fixed:B` ([determinism.md](determinism.md)); if it "
                              "differs between nodes, operations fail"),
      other_key<C>(
          "path", "", "socket", [](const C& of) { return in_quotes(of.socket); }, "`/run/gradlane/node<rank>.sock`",
          "up to 107 bytes", kAnyNode, "Unix socket that the daemon makes for trainers"),
      other_key<C>(
          "path", "", "admin", [](const C& of) { return in_quotes(of.admin); }, "`socket` with the suffix `.admin`",
          "up to 107 bytes, not `socket`", kAnyNode,
          "Unix socket that the daemon makes for `gradlane stats`, `top`, `trace` and `check`"),
      other_key<C>(
          "word", "", "codec", [](const C& of) { return of.auto_codec.empty() ? of.codec.name() : of.auto_codec; },
          "`raw`", "a codec of [codecs.md](codecs.md), or `auto`, `auto:2^-B`, `auto:rel=B` ([plan.md](plan.md))",
          kSameOnAll, "codec of fp32 sums that name none"),
      other_key<C>("list", "", "strategies", strategies_text, "`[ring]`",
                   "1 to 5 of `ring`, `direct`, `rings:G`, `aggregator:R`, `aggregator:R,stream`", kSameOnAll,
                   "strategies that operations may name; operations that name none use the first one"),
      other_key<C>(
          "word", "", "strategy", [](const C& of) { return std::string(of.auto_strategy ? "auto" : ""); }, "", "`auto`",
          kSameOnAll, "operations that name no strategy use the one that is measured to be the fastest"),
      other_key<C>(
          "path", "", "calibration", [](const C& of) { return path_text(of.calibration); }, "", "path", kAnyNode,
          "file of `gradlane plan --calibrate`, from which `auto` predicts times; a file that is too old or of another "
          "host is "
          "refused"),
      other_key<C>(
          "path", "", "plan", [](const C& of) { return path_text(of.plan_file); }, "", "path", "compared by `auto`",
          "file of `gradlane stats --freeze`, which says what `auto` chooses, in place of trials"),
      whole_key<C, kMinIpMtu, kMaxIpMtu, &C::mtu>(
          "", "mtu", kSameOnAll,
          "longest IP packet in bytes, with its headers; IP and UDP headers take 28 bytes of it, with IPv6 48"),
      flag_key<C, &C::segments>("", "segments", kSameOnAll,
                                "ports of kind `udp` split packets of up to 16 KiB into datagrams that fit `mtu`; set "
                                "it to `false` on all nodes if one has a port of another kind. It has no effect with "
                                "`auth.key_file`"),
      whole_key<C, 1, kMaxUdpPort, &C::udp_port>("", "udp_port", kSameOnAll,
                                                 "first of `workers.lanes` * `trainers` UDP ports"),
      tos_key<C, &C::tos_compressed>("compressed", kSameOnAll, "multiples of 4 up to `0xfc`, all three different",
                                     "ToS byte of packets with compressed gradients"),
      tos_key<C, &C::tos_raw>("raw", kSameOnAll, "", "ToS byte of packets with uncompressed gradients"),
      tos_key<C, &C::tos_control>("control", kSameOnAll, "",
                                  "ToS byte of control packets, which keep the ring together"),
      other_key<C>("list", "", "ports", ports_text, "none; a ring of one node needs none", "up to 16 ports", kAnyNode,
                   "network devices, see [Ports](#ports)"),
      whole_key<C, 1, kMaxLanes, &C::lanes>("workers", "lanes", kSameOnAll,
                                            "queues of each port; each tensor is divided among the lanes"),
      whole_key<C, 1, kMaxLanes, &C::threads>("workers", "threads", kAnyNode, "threads that poll the lanes")
          .with_allowed("1 to `lanes`"),
      other_key<C>(
          "list", "workers", "cores", [](const C& of) { return fmt::format("[{}]", fmt::join(of.cores, ", ")); },
          "`[]`", "one CPU per thread, 0 to 1023", kAnyNode, "pins the threads; `[]`: the scheduler chooses"),
      other_key<C>(
          "word", "workers", "idle", [](const C& of) { return std::string(kIdleWords[static_cast<size_t>(of.idle)]); },
          "`adaptive`", "`spin`, `yield`, `adaptive`", kAnyNode,
          "what a thread does while no packets arrive: `spin` keeps polling, `yield` gives up the CPU after each poll, "
          "`adaptive` yields and then sleeps"),
      flag_key<C, &C::hugepages>("memory", "hugepages", kAnyNode, "takes memory of packet buffers from hugepages"),
      size_key<C, kMiB, kMiB << 20, &C::trainer_memory>(
          "memory", "per_trainer", kAnyNode,
          "limit of the memory that a trainer shares with the daemon, or has freed and still holds"),
      whole_key<C, settings::kWindow.least, settings::kWindow.most, &C::window>(
          "exchange", "window", kAnyNode,
          "limit of packets in flight to a neighbour; with ports of kind `udp`, `net.core.rmem_max` may lower it")
          .with_allowed("powers of two, 2 to 4096"),
      whole_key<C, settings::kOperations.least, settings::kOperations.most, &C::operations>(
          "exchange", "operations", kAnyNode,
          "operations in flight on a lane; of operations up to 16 KiB four times as many, but at most 256"),
      size_key<C, settings::kMaxTensor.least, settings::kMaxTensor.most, &C::max_tensor>(
          "exchange", "max_tensor", "yes, if below `64MiB`",
          "largest tensor that is one operation; the library divides longer ones. Each of `operations` takes 1/512 of "
          "it as "
          "memory"),
      whole_key<C, settings::kQueueTarget.least, settings::kQueueTarget.most, &C::queue_target>(
          "exchange", "queue_target", kAnyNode, "packets of a link that may wait in queues of the network")
          .with_default("16; with ports of kind `udp` 64"),
      duration_key<C, settings::kPeerTimeout.least, settings::kPeerTimeout.most, &C::peer_timeout>(
          "timeouts", "peer", kAnyNode, "time after a node's last packet until all operations fail on all nodes"),
      duration_key<C, settings::kStartTimeout.least, settings::kStartTimeout.most, &C::start_timeout>(
          "timeouts", "start", kAnyNode,
          "how long an operation waits for the ring to become ready, if its trainer sets no limit"),
      duration_key<C, settings::kOperationTimeout.least, settings::kOperationTimeout.most, &C::operation_timeout>(
          "timeouts", "operation", kAnyNode, "time limit of an operation, if its trainer sets none"),
      duration_key<C, 0, 3600 * kSecond, &C::shutdown_timeout>(
          "timeouts", "shutdown", kAnyNode, "how long the daemon waits for operations in flight after SIGTERM"),
      duration_key<C, settings::kMinRto.least, settings::kMinRto.most, &C::min_rto>(
          "timeouts", "min_rto", kAnyNode, "shortest time-out after which a packet is sent again"),
      other_key<C>(
          "word", "", "security",
          [](const C& of) { return std::string(kSecurityWords[static_cast<size_t>(of.security)]); },
          "`none`; with a key, `authenticated`", "`none`, `authenticated`, `encrypted`, `encrypted-128`", kSameOnAll,
          "what the ring's key is for: packets are only authenticated, or encrypted with AES-256 or AES-128 "
          "([security.md](security.md))"),
      other_key<C>(
          "path", "auth", "key_file", [](const C& of) { return path_text(of.key_file); }, "none", "path",
          "yes, the key in it",
          "file with the ring's key: packets with another key, or none, are refused; `stdin`: a key for each pair of "
          "nodes, "
          "agreed on through standard input and output ([security.md](security.md))"),
      other_key<C>(
          "name", "", "user", [](const C& of) { return path_text(of.user); }, "none: the user stays the same",
          "name of a user", kAnyNode,
          "user that the daemon changes to after it has opened its devices and sockets ([security.md](security.md))"),
      flag_key<C, &C::containment>(
          "", "containment", kAnyNode,
          "limits system calls and files of the running daemon ([security.md](security.md#on-the-machine)); `false` "
          "allows debuggers and core dumps"),
  };
  std::ranges::move(fault_keys<C>(), std::back_inserter(keys));
  std::vector<ConfigKey<C>> rest = {

      other_key<C>(
          "address", "", "metrics",
          [](const C& of) { return of.metrics ? in_quotes(address_text(*of.metrics)) : path_text(of.metrics_socket); },
          "off", "`ADDRESS:PORT`, `\"[IPV6]:PORT\"`, `node:PORT`, `/PATH` up to 107 bytes", kAnyNode,
          "address where the daemon answers HTTP requests of Prometheus and of `gradlane top` on other machines "
          "([monitoring.md](monitoring.md)); `node` is this node's `ip`, with ports of kind `udp`; `/PATH` is a Unix "
          "socket"),
      flag_key<C, &C::telemetry>("", "telemetry", kAnyNode, "has no effect, and will be refused by 0.3; use `metrics`"),
      other_key<C>(
          "word", "", "log", [](const C& of) { return of.log; }, "`info`", "`trace`, `debug`, `info`, `warn`, `error`",
          kAnyNode, "least severe level of messages that are logged"),
      other_key<C>(
          "path", "", "log_file", [](const C& of) { return path_text(of.log_file); }, "none: standard error", "path",
          kAnyNode,
          "file to which the daemon appends its log and all that would go to standard error; SIGHUP reopens it. A "
          "symbolic link is refused"),
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
