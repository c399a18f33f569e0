// run_plan.cc - the options of `gradlane run`, understood and checked (set-up only)
#include "tools/run_plan.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "collectives/wire.h"
#include "compress/codec.h"
#include "compress/error.h"
#include "config/config.h"
#include "tools/run_net.h"

namespace gradlane {
namespace {

constexpr unsigned kMaxVhostLanes = 8;  // DPDK's virtio driver has no more queue pairs

using Names = std::vector<std::string>;

unsigned parse_number(const char* option, const std::string& text, size_t fallback, size_t least, size_t most) {
  if (text.empty()) return static_cast<unsigned>(fallback);
  unsigned value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end && value >= least && value <= most) return value;
  throw SetupError(fmt::format("{} '{}': must be {} to {}", option, text, least, most));
}

// The first one is the default.
std::string parse_name(const char* option, const std::string& text, const Names& allowed) {
  if (text.empty()) return allowed.front();
  if (std::ranges::find(allowed, text) != allowed.end()) return text;
  throw SetupError(fmt::format("{} '{}': must be one of {}", option, text, fmt::join(allowed, ", ")));
}

int file_fault(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return errno == EACCES ? 126 : 127;
  return S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0 ? 0 : 126;
}

// The path of a command, as execvp() finds it; empty: nowhere.
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
  throw SetupError(fmt::format("no gradlaned: neither {} nor in PATH; set GRADLANED to its path", beside));
}

namespace {

// What only this link has, and needs.
void plan_veth(const RunOptions& options, RunPlan& plan) {
  if (geteuid() != 0) {
    throw SetupError("--link veth needs root, for network namespaces: 'sudo gradlane run ...', or leave it out");
  }
  plan.link = RunPlan::Link::kVeth;
  plan.mtu = 1500;
  if (!options.rate.empty()) plan.rate = parse_rate(options.rate);
}

}  // namespace

RunPlan make_run_plan(const RunOptions& options) {
  RunPlan plan;
  if (options.nodes.empty()) throw SetupError("-n is missing: the number of nodes\nsee 'gradlane run --help'");
  plan.nodes = parse_number("-n", options.nodes, 1, 1, kMaxRunNodes);
  const std::string link = parse_name("--link", options.link, {"vhost", "memif", "ring", "veth"});
  if (link == "memif") plan.link = RunPlan::Link::kMemif;
  plan.link = link == "ring" ? RunPlan::Link::kRing : plan.link;
  if (link == "veth") plan_veth(options, plan);
  plan.codec = find_codec(options.codec.empty() ? kDefaultCodec : options.codec).name();
  plan.lanes = parse_number("--lanes", options.lanes, 1, 1, kMaxLanes);
  plan.trainers = parse_number("--trainers", options.trainers, 1, 1, kMaxTrainers);
  plan.local_reduce = options.local_reduce;
  plan.mtu = parse_number("--mtu", options.mtu, plan.mtu, kMinIpMtu, kMaxIpMtu);
  plan.idle = parse_name("--idle", options.idle, {"adaptive", "spin", "yield"});
  plan.log = parse_name("--log", options.log, {"warn", "trace", "debug", "info", "error"});
  plan.keep_configs = options.keep_configs;
  plan.prefix = !options.no_prefix;
  if (options.has_command && options.command.empty()) throw SetupError("there is no command behind '--'");
  plan.command = options.command;
  if (plan.ranks() > kMaxWorld) {
    throw SetupError(fmt::format("-n {} --trainers {}: that makes {} ranks; at most {}", plan.nodes, plan.trainers,
                                 plan.ranks(), kMaxWorld));
  }
  if (!options.rate.empty() && plan.link != RunPlan::Link::kVeth) {
    throw SetupError(fmt::format("--rate {}: only links of --link veth have one", options.rate));
  }
  if (plan.lanes > 1 && plan.link == RunPlan::Link::kVeth) {
    throw SetupError(fmt::format("--lanes {}: with --link veth it must be 1; its ports have one queue", plan.lanes));
  }
  if (plan.lanes > kMaxVhostLanes && plan.link == RunPlan::Link::kVhost) {
    throw SetupError(fmt::format("--lanes {}: at most {} with --link vhost; with --link memif {}", plan.lanes,
                                 kMaxVhostLanes, kMaxLanes));
  }
  plan.daemon = find_daemon();
  return plan;
}

int command_fault(const std::string& name) {
  int fault = 0;
  (void)look_up(name, fault);
  return fault;
}

unsigned free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool found = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!found) throw SetupError(fmt::format("no free TCP port on 127.0.0.1: {}", std::strerror(error)));
  return ntohs(address.sin_port);
}

std::vector<std::string> rank_variables(const RunPlan& plan, unsigned rank, unsigned port, const std::string& socket) {
  return {
      fmt::format("RANK={}", rank),
      fmt::format("WORLD_SIZE={}", plan.ranks()),
      fmt::format("LOCAL_RANK={}", rank),
      fmt::format("LOCAL_WORLD_SIZE={}", plan.ranks()),
      // All nodes of the ring are on one machine, which is the only node there is to torchrun.
      "NODE_RANK=0",
      "GROUP_RANK=0",
      "GROUP_WORLD_SIZE=1",
      "MASTER_ADDR=127.0.0.1",
      fmt::format("MASTER_PORT={}", port),
      "GRADLANE_SOCKET=" + socket,
      fmt::format("GRADLANE_NODE={}", plan.node_of(rank)),
  };
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
