// daemon.cc - the control thread of an accelerator: start, checks every 100 ms, orderly end
#include "dataplane/accelerator/daemon.h"

#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/entropy.h"
#include "base/error.h"
#include "config/devices.h"
#include "config/values.h"
#include "dataplane/accelerator/answers.h"
#include "dataplane/accelerator/kernel/offloads.h"
#include "dataplane/accelerator/kernel/port_hold.h"
#include "dataplane/accelerator/packet/vnet_port.h"
#include "dataplane/accelerator/watch.h"
#include "dataplane/accelerator/worker.h"
#include "dataplane/daemon/containment.h"
#include "dataplane/daemon/privileges.h"
#include "dataplane/daemon/signals.h"
#include "dataplane/daemon/supervisor.h"
#include "dataplane/device/eal.h"
#include "dataplane/device/ethdev_port.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/kernel/kernel_interface.h"

namespace gradlane {
namespace {

using Clock = AdminSocket::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kTendEvery{100};  // interval of checks that no file descriptor can trigger

// Returns the number of packet buffers that the daemon needs: in devices, in send queues, held back by injected faults,
// in the worker's cache, and in the engine.
size_t buffers_for(const AcceleratorConfig& config) {
  constexpr size_t kElsewhere = 2 * AcceleratorQueue::kQueued + FaultInjector::kHeld + 512 + 256;
  return buffers_in(config.host) + buffers_in(config.wire) + kElsewhere;
}

size_t longest_frame(const AcceleratorConfig& config, bool (&powers)(const PortConfig&)) {
  const std::array ports = {config.host, config.wire};
  return longest_packet(ports, config.mtu, powers);
}

void check_offloads(const AcceleratorConfig& config) {
  std::string text;
  for (const std::string& fault : offload_faults(config)) text += (text.empty() ? "" : "\n") + fault;
  if (!text.empty()) throw SetupError(text);
}

void start_dpdk(const AcceleratorConfig& config) {
  std::vector<std::string> pci;
  for (const PortConfig* const port : {&config.host, &config.wire}) {
    if (port->kind == PortConfig::Kind::kPci) pci.push_back(port->device);
  }
  EalOptions options;
  options.memory_bytes = accelerator_packet_bytes(config);
  options.hugepages = config.hugepages;
  options.verbose = config.log == "debug" || config.log == "trace";
  options.pci = pci;
  start_eal(options);
}

AcceleratorWorker::Setup worker_setup(const AcceleratorConfig& config) {
  AcceleratorWorker::Setup setup;
  setup.engine.codec = config.codec;
  setup.engine.mtu = config.mtu;
  setup.engine.tos_compressed = config.tos_compressed;
  setup.engine.tos_wire = config.tos_wire;
  setup.engine.udp_port = config.udp_port;
  setup.engine.hold = config.repack ? config.repack_hold : 0;
  setup.engine.streams.streams = config.connections;
  setup.engine.streams.memory = config.memory;
  setup.engine.streams.seed = random_bits();
  setup.engine.seed = random_bits();
  setup.faults = config.faults;
  setup.idle = config.idle;
  const bool kernel = traits_of(config.host).kernel || traits_of(config.wire).kernel;
  setup.patience = kernel ? Idle::kKernelPatience : Idle::kMemoryPatience;
  return setup;
}

void log_start(const AcceleratorConfig& config) {
  const std::string repack =
      config.repack ? "packets wait up to " + duration_text(config.repack_hold) + " to share a frame" : "no";
  spdlog::info("accelerator: host {}, wire {}, codec {} ({}), MTU {}, ToS {:#04x} ({:#04x} on the wire), repacking: {}",
               config.host.device, config.wire.device, config.codec.name(), isa_name(config.codec.isa()), config.mtu,
               config.tos_compressed, config.tos_wire, repack);
  if (!config.faults.any()) return;
  spdlog::warn("injecting faults into packets from the wire: {}", faults_summary(config.faults));
}

// Throws SetupError if the kernel has an address on the wire's interface, because nobody could reach it. While the
// accelerator runs, the kernel is kept off that interface. At other times, the kernel only forwards packets between it
// and the host port.
void check_wire_is_free(const AcceleratorConfig& config) {
  const std::string name = interface_name(config.wire);
  const std::string address = name.empty() ? "" : address_on(name);
  if (address.empty()) return;
  throw SetupError(fmt::format(
      "interface {} of port wire has the kernel's address {}, which would be unreachable while this accelerator runs: "
      "gradlane accelerator up --config {} moves it to {}; see docs/accelerator.md, \"Set it up\"",
      name, address, config.file, config.interface));
}

// Returns the files that the daemon makes. Some are "".
std::vector<std::string> files_of(const AcceleratorConfig& config, const Port& host, const Port& wire) {
  return {config.admin, config.admin + ".lock", host.socket_file(), wire.socket_file()};
}

ContainmentNeeds needs_of(const AcceleratorConfig& config, const Port& host, const Port& wire, bool removes_log) {
  ContainmentNeeds needs{
      .files = files_of(config, host, wire), .log_file = config.log_file, .removes_log = removes_log};
  needs.add(config.host);
  needs.add(config.wire);
  return needs;
}

// Gives up root's rights. Everything that needs them has been done.
void drop_privileges(const Privileges& privileges, const AcceleratorConfig& config, const Port& host,
                     const Port& wire) {
  if (!privileges.active()) return;
  const std::vector<std::string> files = files_of(config, host, wire);
  for (const std::string& path : files) privileges.give(path);
  privileges.give(config.log_file);
  privileges.drop();
  warn_of_leftovers(config.user, files);
  spdlog::info("running as user {} from now on, without capabilities", config.user);
}

// Answers requests until a signal comes, and returns the signal's name. Throws DeviceLost.
const char* serve(const Signals& signals, AdminSocket& admin, Port& host, Port& wire, const AcceleratorWorker& worker,
                  AcceleratorWatch& watch, PortHold& hold, Supervisor& supervisor) {
  for (auto tended = Clock::now() - kTendEvery;;) {
    if (Clock::now() - tended >= kTendEvery) {
      tended = Clock::now();
      host.maintain();
      wire.maintain();
      watch.look(worker.engine(), clock_now());
      hold.look(clock_now());
      supervisor.look(std::array{worker.rounds()});
    }
    std::array<pollfd, 2> fds = {{{signals.fd(), POLLIN, 0}, {admin.fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>(kTendEvery.count()));
    admin.step();
    if (const char* const signal = signals.take()) return signal;
  }
}

std::unique_ptr<Port> host_port(const AcceleratorConfig& config, rte_mempool* pool) {
  if (config.superpackets) return std::make_unique<VnetPort>(config.host, config.mtu, pool);
  return std::make_unique<EthdevPort>(config.host, config.mtu, pool);
}

// Closes a port. If a thread of its device may still wait for the other side, the port is never destroyed.
void leave(std::unique_ptr<Port>& port) {
  if (port->leave()) (void)port.release();
}

}  // namespace

size_t accelerator_packet_bytes(const AcceleratorConfig& config) {
  return PacketPool::bytes_needed(buffers_for(config),
                                  longest_frame(config, EthdevPort::may_need_power_of_two_buffers));
}

int run_accelerator(const AcceleratorConfig& config, const std::string& version, bool removes_log) {
  const ProcessFacts process{version, Clock::now()};
  const Signals signals(config.log_file);
  Supervisor supervisor;
  const Privileges privileges(config.user);
  check_offloads(config);
  check_wire_is_free(config);
  privileges.prepare_folder_of(config.admin);
  // The admin socket is opened before anything else that others can see. A second daemon of this configuration fails
  // here, and changes nothing.
  std::optional<AcceleratorParts> parts;
  AdminSocket admin(config.admin,
                    [&parts](AdminRequest& request) { return answer_accelerator_admin(*parts, request.line); });
  start_dpdk(config);

  PacketPool pool("accelerator", buffers_for(config), longest_frame(config, EthdevPort::needs_power_of_two_buffers));
  // PortHold is created before the first packet socket. Otherwise the kernel could process a frame that such a socket
  // gets.
  PortHold hold(config);
  std::unique_ptr<Port> host = host_port(config, pool.mempool());
  std::unique_ptr<Port> wire = std::make_unique<EthdevPort>(config.wire, config.mtu, pool.mempool());
  AcceleratorWorker worker(worker_setup(config), *host, *wire, pool);
  AcceleratorWatch watch(config);
  parts.emplace(AcceleratorParts{config, process, *host, *wire, worker, watch, hold});
  worker.start(config.core ? static_cast<int>(*config.core) : -1);
  log_start(config);
  drop_privileges(privileges, config, *host, *wire);
  const Containment containment = contain(needs_of(config, *host, *wire, removes_log), config.containment);

  supervisor.ready();

  int status = 0;
  try {
    spdlog::info("{}: shutting down", serve(signals, admin, *host, *wire, worker, watch, hold, supervisor));
  } catch (const DeviceLost& error) {
    status = kDeviceLostStatus;
    spdlog::error("{}: shutting down with exit status {}, to be started again", error.what(), status);
  }
  supervisor.stopping();
  worker.stop();
  pool.abandon();
  leave(host);
  leave(wire);
  spdlog::info("ended");
  return status;
}

}  // namespace gradlane
