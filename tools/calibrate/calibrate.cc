// calibrate.cc - `gradlane plan --calibrate`: costs of an exchange on this host and its links, measured and written to
// a file
#include "tools/calibrate/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse.h"
#include "base/socket_folders.h"
#include "collectives/wire.h"
#include "config/addresses.h"
#include "config/calibration_file.h"
#include "tools/calibrate/default_file.h"
#include "tools/calibrate/exchange_times.h"
#include "tools/calibrate/host_speed.h"
#include "tools/calibrate/machine.h"
#include "tools/calibrate/output.h"
#include "tools/calibrate/own_daemon.h"
#include "tools/calibrate/ring_speed.h"
#include "tools/hosts/machine.h"
#include "tools/run/ports.h"

namespace gradlane {
namespace {

constexpr unsigned kMostLanes = 256;
// limit for an operation: other ranks may start later, or measure their host meanwhile
constexpr int64_t kLimitMs = 60'000;
constexpr double kMuch = 0.2;              // cores that others use during a measurement
constexpr const char* kNoPython = "none";  // value of --python

namespace fs = std::filesystem;

std::vector<std::string> folders_of_sockets() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  return socket_folders(geteuid(), runtime == nullptr ? "" : runtime);
}

// Returns whether there is any sign of a daemon in the folders where trainers look for sockets. Signs are a socket,
// even if nobody listens on it, and a folder that cannot be read.
bool any_socket() {
  for (const std::string& folder : folders_of_sockets()) {
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    if (error) {
      if (error != std::errc::no_such_file_or_directory) return true;
      continue;
    }
    for (; entry != fs::directory_iterator(); entry.increment(error)) {
      if (entry->path().extension() == ".sock") return true;
    }
  }
  return false;
}

bool somebody_named(const CalibrateOptions& options) {
  const char* const socket = std::getenv("GRADLANE_SOCKET");
  return !options.socket.empty() || !options.admin.empty() || !options.rank.empty() ||
         (socket != nullptr && *socket != 0);
}

// Returns null if there is no daemon and the user has named none. Throws SetupError if a daemon was named or found, and
// does not take this trainer.
std::unique_ptr<Trainer> open_trainer(const CalibrateOptions& options) {
  if (options.alone) return nullptr;
  const bool named = somebody_named(options);
  if (!named && !any_socket()) return nullptr;
  TrainerPlace place;
  place.command = "plan --calibrate";
  place.socket = options.socket;
  if (!options.rank.empty()) {
    const auto rank = parse_decimal(options.rank, 0, kMaxWorld - 1);
    if (!rank) throw SetupError(fmt::format("--rank '{}': must be 0 to {}", options.rank, kMaxWorld - 1));
    place.rank = static_cast<int>(*rank);
  }
  place.limit_ms = kLimitMs;
  if (!named) place.patience_ms = 0;
  try {
    return std::make_unique<Trainer>(place);
  } catch (const SetupError& error) {
    if (named) throw;
    throw SetupError(fmt::format("{}\nTo measure only this host, without its links, use --alone", error.what()));
  }
}

// Throws SetupError if the file at `path` is a calibration that can be used here and has links. This run does not
// measure links, and would overwrite them.
void keep_links(const std::string& path) {
  Calibration there;
  try {
    there = load_calibration(path);
  } catch (const SetupError&) {
    return;
  }
  if (there.links.empty() || !calibration_fault(there, this_use()).empty()) return;
  throw SetupError(fmt::format(
      "{} has links, which cannot be measured now because no daemon runs here.\n"
      "Start the daemon and this command on all nodes, or name them: --nodes HOST,HOST. For this host only,\n"
      "use --alone",
      path));
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// Returns a hash for this machine. It includes the boot ID, because another machine may have the same name.
uint64_t machine_hash(const std::string& name) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return hash_of(name + ' ' + boot);
}

// Returns a calibration with the description of this host, and with the usual figures of its port.
Calibration begin_calibration(PlanPort port) {
  const CalibrationUse here = this_use();
  Calibration calibration = usual_calibration(port);
  calibration.made_s = here.now_s;
  calibration.made = utc_text(here.now_s);
  calibration.host = here.host;
  calibration.cpu = here.cpu;
  calibration.isa = here.isa;
  calibration.program = here.program;
  return calibration;
}

// Returns advice for the next step. A calibration in its default place is found without --calibration.
std::string next_text(const std::string& path, const CalibrateOptions& options) {
  return fmt::format("wrote {}. To see what compression would gain here, run:\n  gradlane plan --model resnet50{}",
                     path, options.output.empty() ? "" : " --calibration " + path);
}

void write(const Calibration& calibration, NewFile& file) {
  const std::string text = calibration_text(calibration);
  // a file that nobody can read must be an error now, not later
  (void)parse_calibration(text, file.path() + ", not written");
  file.put(text);
}

void print(const CalibrationResult& result, const CalibrateOptions& options, bool prints) {
  if (prints && options.json) {
    fmt::print("{}\n", to_json(result));
  } else if (prints) {
    print_calibration(result);
    fmt::print("\n{}\n", next_text(result.file, options));
  } else if (!options.json) {
    fmt::print("done; rank 0 prints the results{}\n",
               result.file.empty() ? "" : "\n" + next_text(result.file, options));
  }
  std::fflush(stdout);
}

// Returns the number of CPUs that this process may run on.
unsigned usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return kMostLanes;  // more CPUs than the set has room for
  return static_cast<unsigned>(CPU_COUNT(&set));
}

std::string target_of(const CalibrateOptions& options) {
  return options.output.empty() ? calibration_target() : options.output;
}

int calibrate_alone(const CalibrateOptions& options, const Progress& progress) {
  Calibration calibration = begin_calibration(options.port.value_or(PlanPort::kUdp));
  calibration.lanes = options.lanes.value_or(1);
  if (const unsigned cpus = usable_cpus(); calibration.lanes > cpus) {
    throw SetupError(
        fmt::format("--lanes {}: this process may use {} CPU{}", calibration.lanes, cpus, cpus == 1 ? "" : "s"));
  }
  const std::string target = target_of(options);
  if (!options.alone) {
    keep_links(target);
    fmt::print(
        stderr,
        "no gradlane daemon runs here (there is no socket in {}), so links are not measured.\n"
        "To measure links, start the daemon and this command on all nodes, or name them: --nodes HOST,HOST. For this\n"
        "host only, use --alone\n",
        fmt::join(folders_of_sockets(), ", "));
  }
  NewFile file(target, options.output.empty());
  measure_host(calibration, progress);
  calibration.contention = measure_contention(calibration.lanes);
  calibration.links.clear();
  write(calibration, file);
  print({.calibration = calibration, .file = file.path()}, options, true);
  return 0;
}

// Returns the text of the SetupError that `what` throws; empty if it throws none.
template <class F>
std::string fault_of(const F& what) {
  try {
    what();
    return "";
  } catch (const SetupError& error) {
    return error.what();
  }
}

// Returns "ADDRESS PORT", where rank 0 can listen and other ranks reach it. Returns "" on other ranks.
std::string master_of(const Trainer& trainer, const DaemonFacts& facts) {
  if (trainer.rank() != 0) return "";
  const char* const address = std::getenv("MASTER_ADDR");
  const char* const port = std::getenv("MASTER_PORT");
  if (address != nullptr && port != nullptr) return fmt::format("{} {}", address, port);
  const std::string reach = facts.reach.empty() ? "" : facts.reach.front();
  return fmt::format("{} {}", reach.empty() ? this_use().host : reach, free_port());
}

// Returns the name of the interface with the address at which other ranks reach this one. Returns "" if it is unknown.
std::string own_interface(const DaemonFacts& facts) {
  const auto address = facts.node < facts.reach.size() ? parse_address(facts.reach[facts.node]) : std::nullopt;
  for (const LocalIp& each : local_ips()) {
    if (address && each.ip == *address) return each.interface;
  }
  return "";
}

// Returns the Python of the options, of the wheel that this program is part of, or of PATH.
std::string python_of(const CalibrateOptions& options) {
  if (!options.python.empty()) return options.python;
  const char* const of_wheel = std::getenv("GRADLANE_PYTHON");
  return of_wheel != nullptr && *of_wheel != 0 ? of_wheel : "python3";
}

// Prepares the measurement through PyTorch, on all ranks. Returns why one of them cannot take part; "" if all can.
std::string prepare_exchanges(const CalibrateOptions& options, const Trainer& trainer, RingSpeed& ring,
                              ExchangeRun& run) {
  // Every daemon is there already, and only the job of this command may use it.
  run.variables = {fmt::format("RANK={}", trainer.rank()), fmt::format("WORLD_SIZE={}", trainer.world()),
                   "GRADLANE_START=0", "GRADLANE_SUMMARY=0"};
  if (!options.socket.empty()) run.variables.push_back("GRADLANE_SOCKET=" + options.socket);
  const auto set_unless_set = [&run](const char* name, const std::string& value) {
    if (std::getenv(name) == nullptr && !value.empty()) run.variables.push_back(fmt::format("{}={}", name, value));
  };
  set_unless_set("OMP_NUM_THREADS", "1");  // as torchrun
  set_unless_set("GLOO_SOCKET_IFNAME", own_interface(ring.facts()));
  const std::string master = ring.share_texts(master_of(trainer, ring.facts())).front();
  run.variables.push_back("MASTER_ADDR=" + master.substr(0, master.find(' ')));
  run.variables.push_back("MASTER_PORT=" + master.substr(master.find(' ') + 1));
  const bool wanted = run.python != kNoPython;
  const std::vector<std::string> faults = ring.share_texts(wanted ? import_fault(run) : "has --python none");
  for (size_t rank = 0; rank < faults.size(); ++rank) {
    if (!faults[rank].empty()) return fmt::format("rank {}: {}", rank, faults[rank]);
  }
  return "";
}

// Measures through PyTorch, in a process that takes the place of the trainer. A fault leaves the exchanges empty.
void measure_exchanges(const ExchangeRun& run, unsigned rank, CalibrationResult& result) {
  Calibration& calibration = result.calibration;
  try {
    const ExchangeTimes times = run_exchange_times(run);
    calibration.exchanges = times.exchanges;
    calibration.cores = times.cores;
    if (times.background > kMuch) {
      fmt::print(stderr,
                 "gradlane plan: rank {}: {:.1f} cores were busy while all ranks slept, so times may be too long\n",
                 rank, times.background);
    }
  } catch (const SetupError& error) {
    result.exchanges_fault = fmt::format("rank {}: {}", rank, error.what());
  }
}

int calibrate_ring(const CalibrateOptions& options, std::unique_ptr<Trainer> trainer, const Progress& progress) {
  if (options.port || options.lanes) {
    throw SetupError("--port and --lanes come from the daemon here: leave them out, or use --alone");
  }
  const DaemonView daemon(options.socket, options.admin);
  std::optional<RingSpeed> ring(std::in_place, *trainer, daemon, options.quick);
  CalibrationResult result = {.calibration = begin_calibration(PlanPort::kUdp), .ring = true};
  Calibration& calibration = result.calibration;
  std::optional<NewFile> file;
  const std::string fault = fault_of([&] { file.emplace(target_of(options), options.output.empty()); });
  // Every rank prints this, not only rank 0, because every rank waits for others here.
  const unsigned rank = trainer->rank();
  fmt::print(stderr, "gradlane plan: rank {}, waiting for all {} ranks, {} s at most ...\n", rank, trainer->world(),
             kLimitMs / 1000);
  ring->meet(machine_hash(calibration.host), fault);
  if (!ring->lowest_on_host()) file.reset();

  calibration.port = ring->facts().port;
  calibration.lanes = ring->facts().workers;
  calibration.packets.set_mtu(ring->facts().mtu);
  // All hosts measure at the same time, but only one rank of each host does. The others only wait until it has
  // finished.
  if (ring->lowest_on_host()) {
    measure_host(calibration, progress);
    calibration.contention = measure_contention(calibration.lanes);
  }
  trainer->barrier();
  ring->measure_links(calibration, progress);
  ring->measure_packets(calibration, progress);
  ring->measure_codecs(calibration, progress);
  ring->measure_lambda(calibration, progress);
  result.checked = ring->check(calibration, progress);
  ExchangeRun run = {.python = python_of(options), .quick = options.quick};
  const bool wants_exchanges = run.python != kNoPython;
  if (wants_exchanges) progress("all-reduces through PyTorch");
  result.exchanges_fault = prepare_exchanges(options, *trainer, *ring, run);
  if (!wants_exchanges) result.exchanges_fault.clear();  // this rank did not ask for them
  ring->agree(fault_of([&] {
    if (file) write(calibration, *file);
  }));
  // From here on, ranks do not wait for each other through the daemon any more.
  ring.reset();
  trainer.reset();
  const bool starts = wants_exchanges && result.exchanges_fault.empty();
  if (starts) {
    measure_exchanges(run, rank, result);
    if (file) write(calibration, *file);
  }
  if (file) result.file = file->path();
  if (!result.exchanges_fault.empty() && (starts || rank == 0)) {
    fmt::print(stderr,
               "gradlane plan: not measured through PyTorch: {}\n"
               "Plans will compare with the ideal uncompressed exchange{}\n",
               result.exchanges_fault,
               starts ? ""
                      : ". To compare with Gloo, install PyTorch and the package\n"
                        "gradlane on all nodes, for python3 or for the program of --python EXE");
  }
  print(result, options, rank == 0);
  return 0;
}

}  // namespace

int run_calibrate(CalibrateOptions options) {
  std::optional<OwnDaemon> daemon;
  if (!options.hosts.empty()) {
    if (options.alone || !options.socket.empty() || !options.admin.empty()) {
      throw SetupError("--nodes starts a daemon for the measurement: leave out --alone, --socket and --admin");
    }
    daemon.emplace(options.hosts, options.rank);
    options.socket = daemon->socket();
  }
  if (options.alone && (!options.socket.empty() || !options.admin.empty() || !options.rank.empty())) {
    throw SetupError("--alone uses no daemon: leave out --socket, --admin and --rank");
  }
  try {
    std::unique_ptr<Trainer> trainer = open_trainer(options);
    const bool tells = trainer == nullptr || trainer->rank() == 0;
    const Progress progress = [tells](const std::string& what) {
      if (tells) fmt::print(stderr, "gradlane plan: {} ...\n", what);
    };
    return trainer == nullptr ? calibrate_alone(options, progress)
                              : calibrate_ring(options, std::move(trainer), progress);
  } catch (const PerfError& error) {
    fmt::print(stderr, "gradlane plan: {}\n", error.what());
    return 1;
  }
}

}  // namespace gradlane
