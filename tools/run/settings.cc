// settings.cc - settings of `gradlane run`: its options, read and checked (set-up only)
#include "tools/run/settings.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/entropy.h"
#include "base/error.h"
#include "base/parse.h"
#include "collectives/wire.h"
#include "compress/codec.h"
#include "config/choices.h"
#include "config/config.h"
#include "config/values.h"
#include "config/words.h"
#include "tools/run/interface.h"
#include "tools/run/links.h"
#include "tools/run/ports.h"

namespace gradlane {
namespace {

constexpr Nanos kLongestOperation = 36000 * kSecond;  // limit of timeouts.operation
constexpr size_t kMinIpv6Mtu = 1280;                  // minimum for interfaces: RFC 8200
constexpr unsigned kDraws = 256;                      // tries to find free ports
constexpr unsigned kMaxVhostLanes = 8;                // DPDK's virtio driver has at most as many queue pairs

using Names = std::vector<std::string>;

unsigned parse_number(const char* option, const std::string& text, size_t fallback, size_t least, size_t most) {
  if (text.empty()) return static_cast<unsigned>(fallback);
  if (const auto value = parse_decimal(text, least, most)) return static_cast<unsigned>(*value);
  throw SetupError(fmt::format("{} '{}': must be {} to {}", option, text, least, most));
}

// Returns `text` if it is allowed. If it is empty, returns the first allowed name, which is the default.
std::string parse_name(const char* option, const std::string& text, const Names& allowed) {
  if (text.empty()) return allowed.front();
  if (std::ranges::find(allowed, text) != allowed.end()) return text;
  throw SetupError(fmt::format("{} '{}': must be one of {}", option, text, fmt::join(allowed, ", ")));
}

// Returns the codec if only trainers can do it, not daemons; else an empty text. It is fixed:adaptive, whose bound
// follows each tensor. The name `fixed` without a number means fixed:adaptive.
std::string adaptive_codec(const std::string& name) {
  const std::string word = name.substr(0, name.find(':'));
  const auto may = [&](const CodecRow& row) { return row.adaptive && word == row.word; };
  if (std::ranges::none_of(codec_table(), may)) return {};
  const std::string adaptive = word + ":adaptive";
  const std::string old = word + ":auto";  // name in release 0.1
  const std::string& begun = name.starts_with(old) ? old : adaptive;
  if (name == word || name == begun) return adaptive;
  if (!name.starts_with(begun)) return {};
  const auto bits = parse_decimal(std::string_view(name).substr(begun.size() + 1), kMinAutoBits, kMaxAutoBits);
  if (name[begun.size()] != ':' || !bits) {
    throw SetupError(fmt::format("--codec '{}': must be {}, or {}:BITS with BITS {} to {}", name, adaptive, adaptive,
                                 kMinAutoBits, kMaxAutoBits));
  }
  return fmt::format("{}:{}", adaptive, *bits);
}

// Sets the daemons' codec. If the user named a codec, also sets `trainers_codec`.
void plan_codec(const RunOptions& options, RunSettings& plan) {
  const bool named = !options.codec.empty();
  // an accelerator compresses the traffic that is marked, so its default codec is lossy
  const bool marked = plan.link == RunSettings::Link::kAccelerator;
  if (!marked) plan.trainers_codec = adaptive_codec(options.codec);
  const bool adaptive = !plan.trainers_codec.empty();
  if (!marked && gl_begins_auto(options.codec.c_str())) {
    gl_auto asked{};
    if (!gl_parse_auto(options.codec.c_str(), &asked)) {
      throw SetupError(fmt::format("--codec '{}': there is no such codec; allowed: {}", options.codec, GL_AUTO_USAGE));
    }
    plan.codec = plan.trainers_codec = options.codec;
    return;
  }
  plan.codec = find_codec(adaptive || !named ? (marked ? kDefaultLossyCodec : kDefaultCodec) : options.codec).name();
  if (named && !adaptive) plan.trainers_codec = plan.codec;
}

// Reads a duration in the form of configuration files, or a number of seconds.
std::string parse_timeout(const std::string& text) {
  if (text.empty()) return "";
  const bool bare = std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  const auto time = parse_duration(bare ? text + "s" : text);
  if (time && *time >= kMillisecond && *time <= kLongestOperation) return duration_text(*time);
  throw SetupError(fmt::format("--timeout '{}': must be {} to {}, as in 90 (seconds), 500ms, 30min, 2h", text,
                               duration_text(kMillisecond), duration_text(kLongestOperation)));
}

int file_fault(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return errno == EACCES ? 126 : 127;
  return S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0 ? 0 : 126;
}

// Returns the path of a command, as execvp() finds it. It is empty if there is none.
std::string look_up(const std::string& name, int& fault) {
  fault = 127;
  if (name.find('/') != std::string::npos) {
    fault = file_fault(name);
    return fault == 0 ? name : "";
  }
  const char* const variable = std::getenv("PATH");
  const std::string path = variable != nullptr ? variable : "/bin:/usr/bin";
  for (size_t from = 0; !name.empty() && from <= path.size();) {
    const size_t to = std::min(path.find(':', from), path.size());
    const std::string folder = path.substr(from, to - from);
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    const int here = file_fault(file);
    if (here == 0) {
      fault = 0;
      return file;
    }
    fault = std::min(fault, here);
    from = to + 1;
  }
  return "";
}

}  // namespace

std::string find_daemon() {
  int fault = 0;
  if (const char* const chosen = std::getenv("GRADLANED"); chosen != nullptr && *chosen != '\0') {
    const std::string path = look_up(chosen, fault);
    if (fault == 0) return path;
    throw SetupError(fmt::format("GRADLANED={}: {}", chosen, fault == 127 ? "no such file" : "not executable"));
  }
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::string beside = (self.parent_path() / "gradlaned").string();
  if (file_fault(beside) == 0) return beside;
  const std::string path = look_up("gradlaned", fault);
  if (fault == 0) return path;
  throw SetupError(
      fmt::format("gradlaned was not found, neither as {} nor in PATH; set GRADLANED to its path", beside));
}

namespace {

// Sets rate and MTU of links in namespaces, which need root. Throws SetupError.
void plan_spaces(const RunOptions& options, RunSettings& plan) {
  if (geteuid() != 0) {
    throw SetupError(fmt::format("{} needs root, for network namespaces: 'sudo gradlane run ...', or leave it out",
                                 plan.link != RunSettings::Link::kUdp ? "--link " + plan.link_name
                                 : options.rate.empty()               ? "--inside"
                                                                      : "--rate " + options.rate));
  }
  plan.mtu = 1500;
  if (!options.rate.empty()) plan.rate = parse_rate(options.rate);
}

void plan_link(const RunOptions& options, RunSettings& plan) {
  using Link = RunSettings::Link;
  plan.link_name = parse_name("--link", options.link, {"vhost", "memif", "ring", "veth", "udp", "accelerator"});
  constexpr std::array<std::pair<std::string_view, Link>, 6> kLinks = {{{"vhost", Link::kVhost},
                                                                        {"memif", Link::kMemif},
                                                                        {"ring", Link::kRing},
                                                                        {"veth", Link::kVeth},
                                                                        {"udp", Link::kUdp},
                                                                        {"accelerator", Link::kAccelerator}}};
  for (const auto& [name, link] : kLinks) plan.link = plan.link_name == name ? link : plan.link;
  plan.inside = options.inside;
  if (plan.has_namespaces() || (plan.link == Link::kUdp && !options.rate.empty())) {
    plan_spaces(options, plan);
  } else if (plan.link == Link::kUdp) {
    plan.mtu = kMaxIpMtu;
  } else if (!options.rate.empty()) {
    throw SetupError(
        fmt::format("--rate {}: only links of --link veth, udp and accelerator have a rate", options.rate));
  }
}

// Checks the options of accelerators. These are for programs that do not use gradlane, so there are no trainers and no
// operations.
void plan_accelerators(const RunOptions& options, RunSettings& plan) {
  plan.repack = parse_name("--repack", options.repack, {"on", "off"}) == "on";
  plan.accelerators = parse_name("--accelerator", options.accelerator, {"gradlane", "none"}) == "gradlane";
  if (plan.link != RunSettings::Link::kAccelerator) {
    for (const auto& [name, value] : {std::pair{"--repack", options.repack}, {"--accelerator", options.accelerator}}) {
      if (!value.empty()) throw SetupError(fmt::format("{} {}: only --link accelerator has accelerators", name, value));
    }
    return;
  }
  if (!plan.timeout.empty()) {
    throw SetupError(fmt::format("--timeout {}: with --link accelerator there are no operations", options.timeout));
  }
  if (!options.security.empty()) {
    throw SetupError(fmt::format("--security {}: accelerators have no keys", options.security));
  }
  if (plan.nodes < 2) throw SetupError(fmt::format("-n {}: --link accelerator needs at least 2 nodes", plan.nodes));
  if (plan.trainers > 1 || plan.local_reduce) {
    throw SetupError(fmt::format("{}: with --link accelerator there are no trainers; the command runs once per node",
                                 plan.local_reduce ? "--local-reduce" : "--trainers " + options.trainers));
  }
  if (!plan.accelerators) {
    for (const auto& [name, value] : {std::pair{"--codec", options.codec},
                                      {"--repack", options.repack},
                                      {"--idle", options.idle},
                                      {"--log", options.log},
                                      {"--keep-configs", options.keep_configs}}) {
      if (value.empty()) continue;
      throw SetupError(fmt::format("{} {}: there is no daemon with --accelerator none", name, value));
    }
  } else if (!find_codec(plan.codec).row().accelerator) {
    throw SetupError(
        fmt::format("--codec {}: accelerators support only {}", plan.codec, fmt::join(accelerator_codecs(), " and ")));
  }
}

void check_inside(const RunSettings& plan) {
  if (!plan.inside || (plan.has_namespaces() && plan.link != RunSettings::Link::kAccelerator)) return;
  throw SetupError(
      plan.link == RunSettings::Link::kAccelerator
          ? "--inside: leave it out; with --link accelerator the command runs in the hosts' namespaces"
          : fmt::format("--inside: needs --link veth or udp; with --link {} nodes have no namespaces", plan.link_name));
}

void plan_ipv6(const RunOptions& options, RunSettings& plan) {
  plan.ipv6 = options.ipv6;
  if (!plan.ipv6 || plan.link == RunSettings::Link::kUdp) return;
  throw SetupError(fmt::format("--ipv6: needs --link udp; links of --link {} have IPv4", plan.link_name));
}

void plan_metrics(const RunOptions& options, RunSettings& plan) {
  plan.metrics = parse_number("--metrics", options.metrics, 0, 1, 65536 - plan.nodes);
  if (plan.metrics == 0 || (!plan.has_namespaces() && plan.link != RunSettings::Link::kAccelerator)) return;
  throw SetupError(
      fmt::format("--metrics {}: cannot be used here, because nodes are in networks of their own", plan.metrics));
}

void check_lanes(const RunSettings& plan) {
  if (plan.lanes > 1 && plan.link == RunSettings::Link::kAccelerator) {
    throw SetupError(
        fmt::format("--lanes {}: with --link accelerator it must be 1; accelerators have one lane", plan.lanes));
  }
  if (plan.lanes > 1 && plan.link == RunSettings::Link::kVeth) {
    throw SetupError(fmt::format("--lanes {}: with --link veth it must be 1; its ports have one queue", plan.lanes));
  }
  if (plan.lanes > kMaxVhostLanes && plan.link == RunSettings::Link::kVhost) {
    throw SetupError(fmt::format("--lanes {}: at most {} with --link vhost; with --link memif {}", plan.lanes,
                                 kMaxVhostLanes, kMaxLanes));
  }
}

// Returns `security` of the nodes. Any user of this machine can send packets to sockets of its loopback interface, so
// they have a key by default. No other link has packets of other users.
std::string plan_security(const RunOptions& options, const RunSettings& plan) {
  const bool shared = plan.link == RunSettings::Link::kUdp && !plan.has_namespaces() && plan.nodes > 1;
  if (options.security.empty()) return shared ? "authenticated" : "none";
  return parse_name("--security", options.security, {std::begin(kSecurityWords), std::end(kSecurityWords)});
}

// Draws a job whose ports are free. After kDraws tries, takes the last one.
void draw_job(RunSettings& plan) {
  for (unsigned tries = 0; tries < kDraws; ++tries) {
    plan.job = 1 + static_cast<unsigned>(random_bits() % kMaxJob);
    const unsigned ports = plan.ranks() * plan.lanes;
    if (!plan.ipv6 || plan.has_namespaces() || are_free_udp_ports(loopback_port(plan, 0), ports)) return;
  }
}

}  // namespace

RunSettings make_run_settings(const RunOptions& options) {
  RunSettings plan;
  if (options.nodes.empty()) throw SetupError("-n is missing: the number of nodes\nsee 'gradlane run --help'");
  plan.nodes = parse_number("-n", options.nodes, 1, 1, kMaxRunNodes);
  plan_link(options, plan);
  plan_codec(options, plan);
  plan.lanes = parse_number("--lanes", options.lanes, 1, 1, kMaxLanes);
  plan.trainers = parse_number("--trainers", options.trainers, 1, 1, kMaxTrainers);
  plan.local_reduce = options.local_reduce;
  plan_ipv6(options, plan);
  plan.mtu = parse_number("--mtu", options.mtu, plan.mtu, plan.ipv6 ? kMinIpv6Mtu : kMinIpMtu,
                          plan.link == RunSettings::Link::kUdp ? kMaxIpMtu : kMaxFrameMtu);
  plan.idle = parse_name("--idle", options.idle, {"adaptive", "spin", "yield"});
  plan.security = plan_security(options, plan);
  plan.timeout = parse_timeout(options.timeout);
  plan.log = parse_name("--log", options.log, {"warn", "trace", "debug", "info", "error"});
  plan.keep_configs = options.keep_configs;
  plan.prefix = !options.no_prefix;
  if (options.has_command && options.command.empty()) throw SetupError("there is no command behind '--'");
  plan.command = options.command;
  if (plan.ranks() > kMaxWorld) {
    throw SetupError(fmt::format("-n {} --trainers {}: that makes {} ranks; at most {}", plan.nodes, plan.trainers,
                                 plan.ranks(), kMaxWorld));
  }
  plan_metrics(options, plan);
  check_lanes(plan);
  plan_accelerators(options, plan);
  plan_strategies(options, plan);
  check_inside(plan);
  if (plan.has_daemons()) plan.daemon = find_daemon();
  draw_job(plan);
  return plan;
}

std::string node_address(unsigned node) { return fmt::format("10.77.0.{}", node + 1); }

// A node takes six bits, because there are at most 64.
std::string loopback_address(unsigned node, unsigned job) {
  const unsigned host = job << 6 | node;
  return fmt::format("127.{}.{}.{}", host >> 16, host >> 8 & 0xff, host & 0xff);
}

std::string node_ipv6_address(unsigned node) { return fmt::format("fd77::{:x}", node + 1); }

// Ports are below those that the kernel gives to sockets that ask for any port.
unsigned loopback_port(const RunSettings& plan, unsigned node) {
  constexpr unsigned kFirst = 10000;
  constexpr unsigned kBehind = 32768;
  static_assert(kMaxRunNodes * kMaxLanes * kMaxTrainers < kBehind - kFirst);
  const unsigned each = plan.lanes * plan.trainers;
  return kFirst + plan.job % (kBehind - kFirst - plan.nodes * each) + node * each;
}

std::string inside_address(unsigned node) { return fmt::format("10.77.1.{}", node + 1); }

int command_fault(const std::string& name) {
  int fault = 0;
  (void)look_up(name, fault);
  return fault;
}

namespace {

// Returns the variables for commands that run in their nodes' namespaces. To torchrun, each node is then a machine of
// its own.
std::vector<std::string> machine_variables(const RunSettings& plan, unsigned rank, unsigned port,
                                           std::string (*address_of)(unsigned)) {
  std::vector<std::string> addresses;
  for (unsigned i = 0; i < plan.nodes; ++i) addresses.push_back(address_of(i));
  const unsigned node = plan.node_of(rank);
  return {
      fmt::format("RANK={}", rank),
      fmt::format("WORLD_SIZE={}", plan.ranks()),
      fmt::format("LOCAL_RANK={}", rank % plan.trainers),
      fmt::format("LOCAL_WORLD_SIZE={}", plan.trainers),
      fmt::format("NODE_RANK={}", node),
      fmt::format("GROUP_RANK={}", node),
      fmt::format("GROUP_WORLD_SIZE={}", plan.nodes),
      "MASTER_ADDR=" + addresses.front(),
      fmt::format("MASTER_PORT={}", port),
      "GRADLANE_ADDRESS=" + addresses[node],
      fmt::format("GRADLANE_PEERS={}", fmt::join(addresses, ",")),
      fmt::format("GRADLANE_NODE={}", node),
  };
}

// Names an interface for Gloo, which does not look for one by itself.
void add_interface(std::vector<std::string>& variables, const char* interface) {
  constexpr const char* kName = "GLOO_SOCKET_IFNAME";
  if (std::getenv(kName) == nullptr) variables.push_back(fmt::format("{}={}", kName, interface));
}

}  // namespace

std::vector<std::string> rank_variables(const RunSettings& plan, unsigned rank, unsigned port,
                                        const std::string& socket) {
  std::vector<std::string> result = {
      fmt::format("RANK={}", rank),
      fmt::format("WORLD_SIZE={}", plan.ranks()),
      fmt::format("LOCAL_RANK={}", rank),
      fmt::format("LOCAL_WORLD_SIZE={}", plan.ranks()),
      // All nodes of the ring are on one machine. To torchrun, that is the only node.
      "NODE_RANK=0",
      "GROUP_RANK=0",
      "GROUP_WORLD_SIZE=1",
      "MASTER_ADDR=127.0.0.1",
      fmt::format("MASTER_PORT={}", port),
      "GRADLANE_SOCKET=" + socket,
      fmt::format("GRADLANE_NODE={}", plan.node_of(rank)),
  };
  if (!plan.trainers_codec.empty()) result.push_back("GRADLANE_CODEC=" + plan.trainers_codec);
  add_interface(result, "lo");
  return result;
}

std::vector<std::string> inside_variables(const RunSettings& plan, unsigned rank, unsigned port,
                                          const std::string& socket, std::vector<std::string> spaces) {
  std::vector<std::string> result = machine_variables(plan, rank, port, inside_address);
  spaces.resize(plan.nodes);  // without the switch's namespace
  result.push_back("GRADLANE_SOCKET=" + socket);
  result.push_back(fmt::format("GRADLANE_NAMESPACES={}", fmt::join(spaces, ",")));
  if (!plan.trainers_codec.empty()) result.push_back("GRADLANE_CODEC=" + plan.trainers_codec);
  add_interface(result, kInsideName);
  return result;
}

std::vector<std::string> host_variables(const RunSettings& plan, unsigned node, unsigned port,
                                        const std::string& admin) {
  std::vector<std::string> result = machine_variables(plan, node, port, node_address);
  if (!admin.empty()) result.push_back("GRADLANE_ADMIN=" + admin);
  add_interface(result, kVethName);
  return result;
}

std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> result = variables;
  const auto name_of = [](std::string_view variable) { return variable.substr(0, variable.find('=')); };
  for (char** each = environ; *each != nullptr; ++each) {
    const auto same_name = [&](const std::string& ours) { return name_of(ours) == name_of(*each); };
    if (std::ranges::none_of(variables, same_name)) result.emplace_back(*each);
  }
  return result;
}

}  // namespace gradlane
