// ring_speed.cc - links, packets, start and lambda of a running ring, measured by all of its ranks together
#include "tools/calibrate/ring_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "collectives/cost/fit.h"
#include "collectives/strategy/codec_needs.h"
#include "compress/codec.h"
#include "sim/data.h"
#include "tools/bench/compute_loop.h"
#include "tools/bench/report.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

// code of this command, which ranks exchange to check that all of them run it
constexpr int64_t kCalibrating = 0x67'6c'63'61'6c'31;
constexpr size_t kLeastBytes = size_t{64} << 10;
constexpr size_t kMostBytes = size_t{32} << 20;
constexpr double kLongEnough = 0.04;  // s; shorter transfers depend too much on token buckets and on the scheduler
constexpr size_t kPart = 4;           // length of a long transfer, divided by that of a short one
constexpr size_t kSmallBytes = 4096;
constexpr size_t kCodecBytes = size_t{4} << 20;  // more than a core's cache
constexpr const char* kSmallest = "fixed:7";     // smallest codec that every ring carries
constexpr double kHalf = 0.5;                    // the median
constexpr double kNano = 1e-9;
constexpr double kBusy = 0.8;  // a worker that works for more than this share of a transfer has no time left

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int64_t nanos(double seconds) { return static_cast<int64_t>(std::llround(seconds / kNano)); }

// Returns `bytes`, limited to the allowed range, and rounded down so that all ranks have whole blocks.
size_t whole_floats(double bytes) {
  const auto floats = static_cast<size_t>(std::clamp(bytes, double{kLeastBytes}, double{kMostBytes})) / sizeof(float);
  return floats / 1024 * 1024 * sizeof(float);
}

// Returns the busy time in s, between two readings, of the worker that worked most.
double most_between(const std::vector<double>& before, const std::vector<double>& after) {
  double most = 0;
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) most = std::max(most, after[i] - before[i]);
  return most;
}

double sum_of(const std::vector<double>& times) { return std::accumulate(times.begin(), times.end(), 0.0); }

}  // namespace

RingSpeed::RingSpeed(Trainer& trainer, const DaemonView& daemon, bool quick)
    : trainer_(trainer), daemon_(daemon), quick_(quick), facts_(daemon.facts()) {
  if (facts_.trainers != 1) {
    throw SetupError(
        fmt::format("the nodes have {} trainers each; to measure links, start one per node", facts_.trainers));
  }
  if (trainer_.rank() != facts_.node) {
    throw SetupError(
        fmt::format("rank {} uses the admin socket of node {}: name that of its own node with --admin PATH",
                    trainer_.rank(), facts_.node));
  }
  if (trainer_.world() != facts_.nodes) {
    throw SetupError(
        fmt::format("there are {} ranks, but the daemon reports {} nodes: it has another version than this program",
                    trainer_.world(), facts_.nodes));
  }
  if (trainer_.world() < 2) throw SetupError("a ring of one rank has no links; to measure only this host, use --alone");
  const std::vector<std::string> allowed = trainer_.strategies();
  const auto allows = [&allowed](const char* name) { return std::ranges::find(allowed, name) != allowed.end(); };
  if (!allows("ring") && !allows("direct")) {
    throw SetupError(
        "the daemons allow neither strategy ring nor direct (strategies in their configuration); only these can "
        "measure single links");
  }
  allowed_ = allowed;
  strategy_ = allows("ring") ? "ring" : "direct";
  input_.resize(kMostBytes / sizeof(float));
  fill_data("gauss-0.01", 1 + trainer_.rank(), input_);
  tensor_ = static_cast<float*>(trainer_.allocate(kMostBytes));
}

RingSpeed::~RingSpeed() { trainer_.release(tensor_); }

void RingSpeed::agree(const std::string& fault) {
  // The text is sent to all ranks: a launcher may end this rank before this rank can print it.
  const std::vector<std::string> faults = share_texts(fault);
  if (!fault.empty()) throw SetupError(fault);
  for (unsigned rank = 0; rank < trainer_.world(); ++rank) {
    if (!faults[rank].empty()) throw SetupError(fmt::format("rank {}: {}", rank, faults[rank]));
  }
}

std::vector<std::string> RingSpeed::share_texts(const std::string& own) {
  std::array<int64_t, 64> words{};
  std::memcpy(words.data(), own.data(), std::min(own.size(), sizeof words - 1));
  const std::vector<int64_t> all = trainer_.gather(words);
  std::vector<std::string> texts;
  for (unsigned rank = 0; rank < trainer_.world(); ++rank) {
    std::array<char, sizeof words> text{};
    std::memcpy(text.data(), &all[rank * words.size()], sizeof words - 1);
    texts.emplace_back(text.data());
  }
  return texts;
}

void RingSpeed::meet(uint64_t host, const std::string& fault) {
  constexpr size_t kFields = 3;
  const int64_t own[kFields] = {kCalibrating + (quick_ ? 1 : 0), static_cast<int64_t>(host >> 1),
                                static_cast<int64_t>(facts_.mtu)};
  const std::vector<int64_t> all = trainer_.gather(own);
  for (unsigned rank = 0; rank < trainer_.world(); ++rank) {
    const int64_t* const its = &all[rank * kFields];
    if (its[0] != own[0])
      throw SetupError(
          fmt::format("rank {} runs another command or has other options; they must be the same on all ranks", rank));
    if (its[2] != own[2]) {
      throw SetupError(fmt::format("rank {} has MTU {}, but rank {} has MTU {}; set the same mtu on all nodes", rank,
                                   its[2], trainer_.rank(), own[2]));
    }
    lowest_on_host_ &= rank >= trainer_.rank() || its[1] != own[1];
  }
  agree(fault);
}

double RingSpeed::time_one(PerfOp op, size_t bytes, const std::string& codec, unsigned root) {
  std::memcpy(tensor_, input_.data(), bytes);
  trainer_.barrier();
  const auto start = Clock::now();
  run_one(op, bytes, codec, root);
  return seconds_since(start);
}

void RingSpeed::run_one(PerfOp op, size_t bytes, const std::string& codec, unsigned root) {
  trainer_.run(op, tensor_, bytes / sizeof(float), GRADLANE_FLOAT32, strategy_.c_str(), codec, GRADLANE_SUM, nullptr,
               static_cast<int>(root));
}

std::vector<double> RingSpeed::share(double own) {
  const int64_t number = nanos(own);
  std::vector<double> all;
  for (const int64_t each : trainer_.gather({&number, 1})) all.push_back(static_cast<double>(each) * kNano);
  return all;
}

double RingSpeed::time_all(PerfOp op, size_t bytes, const std::string& codec, int rounds, double share_below) {
  std::vector<double> slowest;
  for (int i = 0; i < rounds; ++i) {
    const std::vector<double> all = share(time_one(op, bytes, codec));
    slowest.push_back(*std::ranges::max_element(all));
  }
  std::ranges::sort(slowest);
  return slowest[static_cast<size_t>(share_below * static_cast<double>(slowest.size()))];
}

// A rank that leaves the barrier late measures too short a time, so the longer time of the link's two ends counts. The
// shortest time of all repetitions counts, because nothing else has delayed it. Without the ring, the root sends to all
// ranks at once. In that case the slowest rank's time counts, because it includes the wait for the root's port.
double RingSpeed::time_at(unsigned rank, size_t bytes, unsigned root, int rounds) {
  double least = 0;
  double most = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::vector<double> before = daemon_.facts().busy;
    const double own = time_one(PerfOp::kBroadcast, bytes, "raw", root);
    const double busy = most_between(before, daemon_.facts().busy);
    const std::vector<double> all = share(own);
    const double time = by_ring() ? std::max(all[rank], all[root]) : *std::ranges::max_element(all);
    most = std::max(most, time);
    if (i > 0 && time >= least) continue;
    least = time;
    busy_ = busy / time;
  }
  unsteady_ = most > least * kUnsteady;
  return least;
}

// Measures the link from `root` to the next rank by broadcasts around the ring. The next rank has all data as soon as
// they have crossed this one link, no matter how slow later links are. Raises `bytes` until a transfer takes long
// enough.
LinkCost RingSpeed::link_from(unsigned root, const PacketCost& packets, size_t& bytes) {
  const unsigned next = (root + 1) % trainer_.world();
  const double long_enough = quick_ ? kLongEnough / 2 : kLongEnough;
  double seconds = time_at(next, bytes, root, 1);
  while (seconds < long_enough && bytes < kMostBytes) {
    bytes = whole_floats(static_cast<double>(bytes) * std::clamp(1.2 * long_enough / seconds, 2.0, 16.0));
    seconds = time_at(next, bytes, root, 1);
  }
  const int rounds = quick_ ? 3 : 5;
  const size_t less = whole_floats(static_cast<double>(bytes) / kPart);
  const double copies = by_ring() ? 1 : trainer_.world() - 1;
  const TimedBytes part = {copies * wire_bytes(packets, static_cast<double>(less)), time_at(next, less, root, rounds)};
  const TimedBytes whole = {copies * wire_bytes(packets, static_cast<double>(bytes)),
                            time_at(next, bytes, root, rounds)};
  LinkCost link = {root, next, round_trips_[root] / 2, bandwidth_of(part, whole, round_trips_[root])};
  link.unsteady = unsteady_;
  if (core_bound(root, next)) {
    const auto said = static_cast<double>(std::min(speeds_[root], speeds_[next]));
    link.bandwidth = std::max(link.bandwidth, said);
    link.at_least = said == 0;
  }
  return link;
}

bool RingSpeed::core_bound(unsigned root, unsigned next) {
  const std::vector<double> busy = share(busy_);
  return std::max(busy[root], busy[next]) > kBusy;
}

// Returns the round-trip times of the ring's links in s, by sender. For each link, it is the shorter of the times that
// its two ends measured.
std::vector<double> RingSpeed::share_round_trips() {
  const unsigned world = trainer_.world();
  std::vector<double> times(world);
  const std::vector<double> own = daemon_.round_trips(facts_.nodes);
  const std::vector<double> ahead = share(own[(trainer_.rank() + 1) % world]);
  const std::vector<double> behind = share(own[(trainer_.rank() + world - 1) % world]);
  for (unsigned rank = 0; rank < world; ++rank) {
    const double there = ahead[rank];
    const double back = behind[(rank + 1) % world];
    times[rank] = there > 0 && back > 0 ? std::min(there, back) : std::max(there, back);
    if (times[rank] <= 0) {
      throw PerfError(fmt::format("link {} -> {}: no probe was answered; 'gradlane check' finds the cause", rank,
                                  (rank + 1) % world));
    }
  }
  return times;
}

void RingSpeed::measure_links(Calibration& calibration, const Progress& progress) {
  const unsigned world = trainer_.world();
  calibration.links.clear();
  calibration.strategies = allowed_;
  progress("latency");
  round_trips_ = share_round_trips();
  const auto speed = static_cast<int64_t>(facts_.speed);
  speeds_ = trainer_.gather({&speed, 1});
  size_t bytes = kLeastBytes;
  for (unsigned root = 0; root < world; ++root) {
    const unsigned next = (root + 1) % world;
    progress(fmt::format("link {} -> {}", root, next));
    if (root > 0) bytes = whole_floats(static_cast<double>(bytes) / kPart);  // this link may be slower
    calibration.links.push_back(link_from(root, calibration.packets, bytes));
    full_ = full_ == 0 ? bytes : std::min(full_, bytes);
  }
  mark_unsteady(calibration.links);
  calibration.link = slowest(calibration.links, calibration.link);
}

void RingSpeed::measure_packets(Calibration& calibration, const Progress& progress) {
  progress("packets");
  PacketCost& packets = calibration.packets;
  const AllReduceShape shape = {static_cast<double>(full_) / sizeof(float), trainer_.world(), candidate()};
  (void)time_one(PerfOp::kAllReduce, full_, "raw");
  trainer_.barrier();
  std::vector<double> busy;  // one value per round, for a median: in some rounds workers wait for a CPU
  const int rounds = quick_ ? 3 : 9;
  for (int i = 0; i < rounds; ++i) {
    const double before = sum_of(daemon_.facts().busy);
    (void)time_one(PerfOp::kAllReduce, full_, "raw");
    trainer_.barrier();
    busy.push_back(sum_of(daemon_.facts().busy) - before);
  }
  // The costs are those of packets as the model counts them. Sockets may send longer ones.
  const double world = trainer_.world();
  const double count = 2 * (world - 1) / world * static_cast<double>(full_) / packets.payload;
  const double port = port_ns_of(calibration, shape, median(busy), count);
  packets.send_ns = packets.receive_ns = port / 2;
  packets.call_ns = 0;
  packets.per_call = 1;
  // Only ranks that have measured their host know the cost of its port. Links use that of the slowest port, so that
  // they get the same figures on all ranks.
  const std::vector<double> ports = share(lowest_on_host_ ? port * kNano : 0);
  const double slowest_port = *std::ranges::max_element(ports) / kNano;
  for (LinkCost& each : calibration.links) each.latency = latency_of(2 * each.latency, slowest_port);
  calibration.link = slowest(calibration.links, calibration.link);

  progress("start");
  // Few bytes are sent: in long transfers, the bytes that a token bucket lets through at once would distort the figure.
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    seconds = std::min(seconds, time_all(PerfOp::kAllReduce, kSmallBytes, kSmallest, quick_ ? 10 : 40, kHalf));
  }
  calibration.start = start_of(calibration, *calibration.find(kSmallest),
                               {kSmallBytes / sizeof(float), trainer_.world(), candidate()}, seconds);
}

std::string RingSpeed::strategy_for(const std::string& codec) const {
  const CodecRow& row = find_codec(codec).row();
  const unsigned world = trainer_.world();
  std::vector<StrategyId> allowed;
  for (const std::string& each : allowed_) allowed.push_back(find_strategy(each));
  if (needs_links(row) && !links_all(allowed, world)) return "";
  if (carries(candidate(), row, world)) return strategy_;
  const bool direct = std::ranges::find(allowed_, "direct") != allowed_.end();
  return direct && carries(find_strategy("direct"), row, world) ? "direct" : "";
}

void RingSpeed::measure_codecs(Calibration& calibration, const Progress& progress) {
  progress("codecs in an exchange");
  const size_t bytes = std::min(full_, kCodecBytes);
  const std::string usual = strategy_;
  for (CodecCost& each : calibration.codecs) {
    if (each.name == kDefaultCodec) continue;  // its cost is part of the packets' cost
    strategy_ = strategy_for(each.name);
    if (strategy_.empty()) {
      strategy_ = usual;
      continue;
    }
    std::vector<double> busy;
    std::vector<double> slowest;
    for (int i = quick_ ? -1 : -2; i < (quick_ ? 3 : 5); ++i) {
      const double before = sum_of(daemon_.facts().busy);
      const std::vector<double> all = share(time_one(PerfOp::kAllReduce, bytes, each.name));
      if (i < 0) continue;
      busy.push_back(sum_of(daemon_.facts().busy) - before);
      slowest.push_back(*std::ranges::max_element(all));
    }
    const AllReduceShape shape = {static_cast<double>(bytes) / sizeof(float), trainer_.world(), candidate()};
    each.place_ns = place_ns_of(calibration, each, shape, {median(slowest), median(busy)});
    strategy_ = usual;
  }
}

void RingSpeed::measure_lambda(Calibration& calibration, const Progress& progress) {
  progress("computing during an exchange");
  ComputeLoop loop;
  const double span = quick_ ? 0.05 : 0.15;
  std::vector<double> slower;
  const auto speed_of = [&loop](Clock::time_point start, uint64_t rounds) {
    return static_cast<double>(loop.rounds() - rounds) / seconds_since(start);
  };
  for (int i = 0; i < 3; ++i) {
    trainer_.barrier();
    auto start = Clock::now();
    uint64_t rounds = loop.rounds();
    std::this_thread::sleep_for(std::chrono::duration<double>(span));
    const double alone = speed_of(start, rounds);
    trainer_.barrier();
    start = Clock::now();
    rounds = loop.rounds();
    // All ranks must run the same number of operations. It follows from the duration of one, which all of them know.
    const std::vector<double> all = share(time_one(PerfOp::kAllReduce, full_, "raw"));
    const double once = std::max(*std::ranges::max_element(all), 1e-4);
    const int more = static_cast<int>(std::min(100.0, std::ceil(span / once)));
    // These run directly one after the other. Their sums grow, possibly to infinity, which does not take longer.
    for (int k = 0; k < more; ++k) run_one(PerfOp::kAllReduce, full_, "raw");
    const double beside = speed_of(start, rounds);
    slower.push_back(beside > 0 ? alone / beside : 1);
  }
  const auto [least, most] = std::ranges::minmax(slower);
  calibration.lambda_least = least;
  calibration.lambda_most = most;
  calibration.lambda = std::clamp(median(slower), 1.0, 1000.0);
}

std::vector<CheckedTime> RingSpeed::check(Calibration& calibration, const Progress& progress) {
  std::vector<CheckedTime> checked;
  progress("checking");
  for (const char* const codec : {"raw", "fixed:10"}) {
    for (size_t bytes = kSmallBytes; bytes <= std::max(full_, 16 * kSmallBytes); bytes *= 16) {
      const double seconds = time_all(PerfOp::kAllReduce, bytes, codec, quick_ ? 3 : 9, kHalf);
      const AllReduceShape shape = {static_cast<double>(bytes) / sizeof(float), trainer_.world(), candidate()};
      const CodecCost* const cost = calibration.find(codec);
      checked.push_back({codec, bytes, seconds, all_reduce_time(calibration, *cost, shape).seconds});
    }
  }
  calibration.checks = checks_of(checked);
  return checked;
}

}  // namespace gradlane
