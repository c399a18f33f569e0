// calibrate.cc - `gradlane plan --calibrate`: what an exchange costs on this host and its links, as a file
#include "tools/calibrate/calibrate.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/parse.h"
#include "collectives/wire.h"
#include "config/calibration_file.h"
#include "tools/calibrate/default_file.h"
#include "tools/calibrate/host_speed.h"
#include "tools/calibrate/output.h"
#include "tools/calibrate/ring_speed.h"
#include "tools/plan/machine.h"
#include "tools/plan/options.h"

namespace gradlane {
namespace {

constexpr int64_t kLimitMs = 60'000;  // of an operation: others may start later, and measure their host meanwhile

bool somebody_named(const CalibrateOptions& options) {
  const char* const socket = std::getenv("GRADLANE_SOCKET");
  return !options.socket.empty() || (socket != nullptr && *socket != 0);
}

// Null: there is no daemon, and nobody has said that there is; `why` says what was looked for.
std::unique_ptr<Trainer> open_trainer(const CalibrateOptions& options, std::string& why) {
  if (options.alone) return nullptr;
  TrainerPlace place;
  place.command = "plan --calibrate";
  place.socket = options.socket;
  if (!options.rank.empty()) {
    const auto rank = parse_decimal(options.rank, 0, kMaxWorld - 1);
    if (!rank) throw SetupError(fmt::format("--rank '{}': must be 0 to {}", options.rank, kMaxWorld - 1));
    place.rank = static_cast<int>(*rank);
  }
  place.limit_ms = kLimitMs;
  const bool named = somebody_named(options) || place.rank >= 0;
  if (!named) place.patience_ms = 0;
  try {
    return std::make_unique<Trainer>(place);
  } catch (const SetupError& error) {
    if (named) throw;
    why = error.what();
    return nullptr;
  }
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// What the host is, and the usual figures of its port.
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

void finish(const Calibration& calibration, bool ring, const std::vector<CheckedTime>& checked,
            const CalibrateOptions& options, bool prints, NewFile* file) {
  if (file != nullptr) file->put(calibration_text(calibration));
  const std::string path = file == nullptr ? "" : file->path();
  if (prints && options.json) {
    fmt::print("{}\n", to_json(calibration, ring, checked, path));
  } else if (prints) {
    print_calibration(calibration, ring, checked);
    fmt::print("\n{}: written. What compressing would bring here: gradlane plan --model resnet50\n", path);
  } else if (file != nullptr && !options.json) {
    fmt::print("{}: written\n", path);
  }
  std::fflush(stdout);
}

int calibrate_alone(const CalibrateOptions& options, const std::string& why, const Progress& progress) {
  Calibration calibration = begin_calibration(plan_port_of(options.port));
  calibration.lanes = plan_lanes_of(options.lanes);
  NewFile file(options.output.empty() ? calibration_target() : options.output);
  if (!why.empty()) {
    fmt::print(stderr,
               "no daemon of gradlane runs here: links are not measured. Start it on all nodes, and this "
               "command beside\neach; or, without: --alone\n");
  }
  measure_host(calibration, progress);
  calibration.contention = measure_contention(calibration.lanes);
  calibration.links.clear();
  finish(calibration, false, {}, options, true, &file);
  return 0;
}

int calibrate_ring(const CalibrateOptions& options, Trainer& trainer, const Progress& progress) {
  if (!options.port.empty() || !options.lanes.empty()) {
    throw SetupError("--port and --lanes are the daemon's, which is asked: leave them out, or say --alone");
  }
  const DaemonView daemon(options.socket);
  RingSpeed ring(trainer, daemon, options.quick);
  progress(fmt::format("waiting for all {} ranks", trainer.world()));
  Calibration calibration = begin_calibration(PlanPort::kUdp);
  ring.meet(hash_of(calibration.host));
  std::optional<NewFile> file;
  if (ring.first_here()) file.emplace(options.output.empty() ? calibration_target() : options.output);

  calibration.port = ring.facts().port;
  calibration.lanes = ring.facts().workers;
  calibration.packets.set_mtu(ring.facts().mtu);
  // Hosts at once, but ranks of one host not: one measures, and the others need no more than to know that it has.
  if (ring.first_here()) {
    measure_host(calibration, progress);
    calibration.contention = measure_contention(calibration.lanes);
  }
  trainer.barrier();
  ring.measure_links(calibration, progress);
  ring.measure_packets(calibration, progress);
  ring.measure_lambda(calibration, progress);
  const std::vector<CheckedTime> checked = ring.check(calibration, progress);
  finish(calibration, true, checked, options, trainer.rank() == 0, file ? &*file : nullptr);
  trainer.barrier();
  return 0;
}

}  // namespace

int run_calibrate(const CalibrateOptions& options) {
  if (options.alone && (!options.socket.empty() || !options.rank.empty())) {
    throw SetupError("--alone asks no daemon: leave out --socket and --rank");
  }
  std::string why;
  const std::unique_ptr<Trainer> trainer = open_trainer(options, why);
  const bool tells = trainer == nullptr || trainer->rank() == 0;
  const Progress progress = [tells](const std::string& what) {
    if (tells) fmt::print(stderr, "gradlane plan: {} ...\n", what);
  };
  if (trainer == nullptr) return calibrate_alone(options, why, progress);
  try {
    return calibrate_ring(options, *trainer, progress);
  } catch (const PerfError& error) {
    fmt::print(stderr, "gradlane plan: {}\n", error.what());
    return 1;
  }
}

}  // namespace gradlane
