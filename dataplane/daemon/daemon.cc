// daemon.cc - the control thread: start, main loop, orderly end
#include "dataplane/daemon/daemon.h"

#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "config/addresses.h"
#include "config/calibration_file.h"
#include "config/calibration_use.h"
#include "config/choices.h"
#include "config/devargs.h"
#include "dataplane/daemon/containment.h"
#include "dataplane/daemon/device_list.h"
#include "dataplane/daemon/housekeeping.h"
#include "dataplane/daemon/privileges.h"
#include "dataplane/daemon/processes.h"
#include "dataplane/daemon/shutdown.h"
#include "dataplane/daemon/signals.h"
#include "dataplane/daemon/supervisor.h"
#include "dataplane/device/eal.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/node/node.h"
#include "dataplane/status/admin_answers.h"
#include "dataplane/status/job_watch.h"
#include "dataplane/status/metrics.h"
#include "dataplane/status/status.h"

namespace gradlane {
namespace {

constexpr Nanos kFigures = 250 * kMillisecond;  // time in which lanes publish their numbers of unacknowledged packets
// longest wait for the check whether addresses are free, which takes 300 ms
constexpr Nanos kClaim = 2000 * kMillisecond;

void start_dpdk(const std::vector<NodeConfig>& nodes) {
  std::vector<std::string> pci;
  EalOptions options;
  for (const NodeConfig& node : nodes) {
    options.memory_bytes += Node::packet_bytes(node);
    options.hugepages |= node.hugepages;
    options.verbose |= node.log == "debug" || node.log == "trace";
    for (const PortConfig& port : node.ports) {
      if (port.kind == PortConfig::Kind::kPci) pci.push_back(port.device);
    }
  }
  options.pci = pci;
  start_eal(options);
}

// Devices that block are made by threads of their own, several at a time, so they are in DPDK's list before.
void list_devices_that_block(const std::vector<NodeConfig>& nodes) {
  for (const NodeConfig& node : nodes) {
    for (const PortConfig& port : node.ports) {
      if (traits_of(port).blocks) list_device(port.device);
    }
  }
}

// Returns the user that all nodes of this process ask for. Throws SetupError if they differ.
std::string user_of(const std::vector<NodeConfig>& configs) {
  const std::string& user = configs.front().user;
  for (const NodeConfig& config : configs) {
    if (config.user == user) continue;
    throw SetupError(config.file + ": user is '" + config.user + "', and '" + user + "' in " + configs.front().file +
                     ": all nodes of one process must have the same user");
  }
  return user;
}

using Nodes = std::vector<std::unique_ptr<Node>>;
using Jobs = std::vector<std::unique_ptr<JobWatch>>;

// Checks what the new user may not do. Throws SetupError if this user could not make a socket. Warns of files and XDP
// programs that the user cannot remove at the end.
void look_ahead(const Node& node) {
  const std::string& user = node.config().user;
  warn_of_leftovers(user, node.files());
  for (const PortConfig& port : node.config().ports) {
    const DeviceTraits traits = traits_of(port);
    if (traits.blocks && !Privileges::may_write_to(folder_of(traits.socket))) {
      throw SetupError(fmt::format("port {}: user {} cannot create {}: make this user the owner of its folder",
                                   port.name, user, traits.socket));
    }
  }
  for (const NodePort& it : node.ports()) {
    if (!it.port->program_stays()) continue;
    const std::string interface = devargs_value(it.port->device(), "iface");
    spdlog::warn(
        "port {}: user {} cannot remove the XDP program from {} when the daemon ends; afterwards, as root: ip link set "
        "{} xdp off",
        it.port->name(), user, interface, interface);
  }
}

// Changes to the configured user, when everything that needs root is done.
void drop_privileges(const Privileges& privileges, const Nodes& nodes) {
  if (!privileges.active()) return;
  for (const auto& node : nodes) {
    for (const std::string& path : node->files()) privileges.give(path);
    privileges.give(node->config().log_file);
  }
  privileges.drop();
  for (const auto& node : nodes) look_ahead(*node);
  spdlog::info("running as user {} from now on, without capabilities", nodes.front()->config().user);
}

// Gives up what the running daemon does not need, unless a node does without.
Containment contain_nodes(const Nodes& nodes, bool removes_log) {
  ContainmentNeeds needs;
  needs.log_file = nodes.front()->config().log_file;
  needs.removes_log = removes_log;
  bool wanted = true;
  for (const auto& node : nodes) {
    wanted &= node->config().containment;
    std::ranges::copy(node->files(), std::back_inserter(needs.files));
    for (const PortConfig& port : node->config().ports) needs.add(port);
  }
  return contain(needs, wanted);
}

// Events from outside that end the daemon: signals, and the end of the processes that it serves.
struct StopSources {
  explicit StopSources(const std::string& log_file, std::span<const pid_t> serving)
      : signals(log_file), processes(serving) {}

  // Returns a new reason to end, as text for the log; null if there is none.
  [[nodiscard]] const char* take() {
    if (const char* const signal = signals.take()) return signal;
    return processes.take() ? kServed : nullptr;
  }

  static constexpr const char* kServed = "all processes of --for have ended";
  const Signals signals;
  Processes processes;
};

int poll_ms(Nanos time) { return static_cast<int>(time / kMillisecond); }

// Waits at most `most` for an event and does a round of housekeeping. Returns the reason to end, or null.
const char* step(Housekeeping& housekeeping, StopSources& ends, Nanos most) {
  std::vector<pollfd> fds = {{ends.signals.fd(), POLLIN, 0}, {ends.processes.fd(), POLLIN, 0}};
  for (const int fd : housekeeping.fds()) fds.push_back({fd, POLLIN, 0});
  const Nanos wait = housekeeping.busy() ? std::min(most, Housekeeping::kBusyStep) : most;
  poll(fds.data(), fds.size(), poll_ms(wait));
  housekeeping.step(clock_now());
  return ends.take();
}

void tell(Supervisor& supervisor, const Nodes& nodes) {
  std::vector<uint64_t> rounds;
  std::string status;
  for (const auto& node : nodes) {
    for (const auto& worker : node->workers()) rounds.push_back(worker->rounds());
    const auto& neighbours = node->ring().neighbours();
    const auto up = std::ranges::count_if(neighbours, [](const auto& it) { return it.why.empty(); });
    status += fmt::format("{}node {} of {}: {} of {} neighbours are up", status.empty() ? "" : "; ",
                          node->config().rank, node->config().nodes.size(), up, neighbours.size());
  }
  supervisor.look(rounds);
  supervisor.status(status);
}

// Runs until there is a reason to end, and returns it. Throws DeviceLost.
const char* work(Housekeeping& housekeeping, const Nodes& nodes, StopSources& ends, Supervisor& supervisor) {
  const char* end = nullptr;
  for (; end == nullptr; end = step(housekeeping, ends, Housekeeping::kStep)) {
    const Nanos now = clock_now();
    if (!housekeeping.maintain(now)) continue;
    tell(supervisor, nodes);
  }
  return end;
}

// Waits until the running workers have found out whether the addresses are free. Throws SetupError if another host has
// one. A port whose link is down asks later.
void settle_addresses(Nodes& nodes, const Signals& signals) {
  const Nanos end = clock_now() + kClaim;
  const auto settled = [](const auto& node) { return node->addresses_settled(); };
  pollfd fd{signals.fd(), POLLIN, 0};
  while (!std::ranges::all_of(nodes, settled) && clock_now() < end) {
    if (poll(&fd, 1, poll_ms(Housekeeping::kBusyStep)) != 0) break;  // a signal has come; the main loop handles it
  }
  for (const auto& node : nodes) node->check_addresses();
}

void log_counters(const Node& node) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  for (const std::string& line : counter_lines(node_figures(node, clock_now()))) spdlog::debug("{}", line);
}

// Waits until other nodes have acknowledged all packets. The trainers of this node have ended, with their results.
// Trainers of other nodes may still wait for packets that must be retransmitted. A further signal ends the wait.
void wait_for_acknowledgements(Housekeeping& housekeeping, const Nodes& nodes, StopSources& ends) {
  const auto done = [](const auto& node) { return node->unacknowledged() == 0; };
  const Nanos begin = clock_now();
  const Nanos most = nodes.front()->config().shutdown_timeout;
  for (Nanos now = begin; now < begin + most; now = clock_now()) {
    if (now >= begin + kFigures && std::ranges::all_of(nodes, done)) return;
    if (step(housekeeping, ends, Housekeeping::kBusyStep) != nullptr) return;
  }
}

// Shuts the nodes down. `why` names the lost device, without which no operation can complete; null for an ordinary end.
void shut_down(Housekeeping& housekeeping, const Nodes& nodes, StopSources& ends, const char* why) {
  Shutdown shutdown(nodes, why, clock_now());
  bool hurry = false;  // whether a further signal came
  while (!shutdown.step(clock_now(), hurry)) hurry = step(housekeeping, ends, Housekeeping::kBusyStep) != nullptr;
  for (const auto& node : nodes) node->stop_workers();
  for (const auto& node : nodes) {
    log_counters(*node);
    node->say_goodbye();
  }
  usleep(20'000);  // neighbours must read the goodbye before the devices close
}

// Serves metrics for Prometheus and `gradlane top`, if they are configured.
void serve_metrics(Node& node, const JobWatch& job, const ProcessFacts& process) {
  const NodeConfig& config = node.config();
  if (!config.metrics && config.metrics_socket.empty()) return;
  const auto document = [&node, &job, &process](HttpDocument which) {
    if (which == HttpDocument::kStats) return stats_text(node, job, process, clock_now()) + "\n";
    const MetricsFormat format =
        which == HttpDocument::kOpenMetrics ? MetricsFormat::kOpenMetrics : MetricsFormat::kText;
    const NodeFigures figures = node_figures(node, clock_now());
    return metrics_document(figures, process_figures(process), job.total(figures), format);
  };
  const MetricsServer::Types types{content_type(MetricsFormat::kText), content_type(MetricsFormat::kOpenMetrics),
                                   "application/json"};
  if (config.metrics) {
    node.set_metrics(std::make_unique<MetricsServer>(*config.metrics, types, document));
    spdlog::info("node {}: metrics at http://{}/metrics", config.rank, address_text(*config.metrics));
  } else {
    node.set_metrics(std::make_unique<MetricsServer>(config.metrics_socket, types, document));
    spdlog::info("node {}: metrics at {}", config.rank, config.metrics_socket);
  }
}

// Throws SetupError if the configured calibration is not valid here. Figures of another host, or old ones, would be
// worse than none.
void check_calibration(const NodeConfig& config, const std::string& version) {
  if (config.calibration.empty()) return;
  const std::string fault = calibration_fault(load_calibration(config.calibration), calibration_use(version));
  if (!fault.empty()) throw SetupError(config.calibration + ": cannot be used here: " + fault);
}

// Raises the limit of open files as far as this process may. Each piece of trainers' memory takes one.
void allow_open_files() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int run_daemon(const std::vector<NodeConfig>& configs, const PairKeys* pairs, std::span<const pid_t> serving,
               const std::string& version, bool removes_log) {
  const ProcessFacts process{version, std::chrono::steady_clock::now()};
  allow_open_files();
  StopSources ends(configs.front().log_file, serving);
  Supervisor supervisor;
  const Privileges privileges(user_of(configs));
  for (const NodeConfig& config : configs) {
    for (const std::string& path : {config.socket, config.admin, config.metrics_socket})
      privileges.prepare_folder_of(path);
  }
  for (const NodeConfig& config : configs) check_calibration(config, version);
  start_dpdk(configs);
  list_devices_that_block(configs);
  RingLinks links;
  Jobs jobs;  // one for each node
  Nodes nodes;
  for (const NodeConfig& config : configs) {
    nodes.push_back(std::make_unique<Node>(config, links, static_cast<unsigned>(nodes.size()), pairs));
  }
  links.check_all_have_two_ends();
  for (const auto& node : nodes) node->start(clock_now());
  settle_addresses(nodes, ends.signals);
  for (const auto& node : nodes) {
    node->open();
    const NodeConfig& config = node->config();
    spdlog::info("node {} of {}: {} trainer{}{}, {} lane{}, codec {} ({}), MTU {}, socket {}", config.rank,
                 config.nodes.size(), config.trainers, config.trainers == 1 ? "" : "s",
                 config.local_reduce ? " reduced locally" : "", config.lanes, config.lanes == 1 ? "" : "s",
                 config.auto_codec.empty() ? config.codec.name() : config.auto_codec, isa_name(config.codec.isa()),
                 config.mtu, config.socket);
    if (const std::string warning = choices_warning(config); !warning.empty()) {
      spdlog::warn("node {}: {}", config.rank, warning);
    }
    if (!config.security_chosen && uses_network(config)) {
      spdlog::warn(
          "node {}: packets are neither authenticated nor encrypted: set security and auth.key_file, or security: none "
          "if only you can use this network",
          config.rank);
    }
    if (config.telemetry) {
      spdlog::warn("node {}: telemetry: true has no effect; use metrics: 127.0.0.1:9400, or gradlane stats",
                   config.rank);
    }
    jobs.push_back(std::make_unique<JobWatch>(*node));
    const auto answer = [&it = *node, &job = *jobs.back(), &process](AdminRequest& request) {
      return answer_admin(it, job, process, request, clock_now);
    };
    node->set_admin(std::make_unique<AdminSocket>(config.admin, answer));
    serve_metrics(*node, *jobs.back(), process);
  }
  drop_privileges(privileges, nodes);
  const Containment containment = contain_nodes(nodes, removes_log);
  Housekeeping housekeeping(nodes, jobs);
  supervisor.ready();
  std::string lost;
  try {
    const char* const end = work(housekeeping, nodes, ends, supervisor);
    spdlog::info("{}: shutting down", end);
    supervisor.stopping();
    if (end == StopSources::kServed) wait_for_acknowledgements(housekeeping, nodes, ends);
  } catch (const DeviceLost& error) {
    lost = error.what();
    spdlog::error("{}: shutting down with exit status {}, so that the service manager starts the daemon again", lost,
                  kDeviceLostStatus);
  }
  supervisor.stopping();
  shut_down(housekeeping, nodes, ends, lost.empty() ? nullptr : lost.c_str());
  links.drain();
  for (const auto& node : nodes) node->abandon_memory();
  nodes.clear();
  spdlog::info("ended");
  return lost.empty() ? 0 : kDeviceLostStatus;
}

}  // namespace gradlane
