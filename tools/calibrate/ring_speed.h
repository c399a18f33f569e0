// ring_speed.h - links, packets, start and lambda of a ring that runs, measured by all of its ranks together
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/plan/calibration.h"
#include "tools/calibrate/checks.h"
#include "tools/calibrate/daemon_facts.h"
#include "tools/calibrate/host_speed.h"
#include "tools/perf/trainer.h"

namespace gradlane {

// A rank's part. All ranks call the same functions in the same order; operations have time limits, so that a rank that
// is missing is an error on all others (PerfError).
class RingSpeed {
 public:
  // `quick`: fewer rounds, shorter transfers.
  RingSpeed(Trainer& trainer, const DaemonView& daemon, bool quick);
  ~RingSpeed();
  RingSpeed(const RingSpeed&) = delete;
  RingSpeed& operator=(const RingSpeed&) = delete;

  // The first: all ranks are there, have the same in hand, and can do it. Throws SetupError if not. `host`: a hash of
  // what this machine is; `fault`: why this rank cannot go on; empty: it can.
  void meet(uint64_t host, const std::string& fault);
  // Whether no rank has a fault. Throws SetupError if one has, on all.
  void agree(const std::string& fault);
  [[nodiscard]] const DaemonFacts& facts() const noexcept { return facts_; }
  // The lowest rank of this host, which measures the host and writes its file.
  [[nodiscard]] bool first_here() const noexcept { return first_here_; }

  // Fills in links, the same on all ranks; then, from codecs and exchange, which the host's own measurement has filled
  // in, packets, start, what codecs take in place, and lambda.
  void measure_links(Calibration& calibration, const Progress& progress);
  void measure_packets(Calibration& calibration, const Progress& progress);
  void measure_codecs(Calibration& calibration, const Progress& progress);
  void measure_lambda(Calibration& calibration, const Progress& progress);
  // Fills in `checks`.
  [[nodiscard]] std::vector<CheckedTime> check(Calibration& calibration, const Progress& progress);

 private:
  [[nodiscard]] bool by_ring() const noexcept { return strategy_ == "ring"; }
  [[nodiscard]] StrategyId way() const { return find_strategy(strategy_); }
  // The strategy by which it is measured; "": none that is allowed carries it.
  [[nodiscard]] std::string way_of(const std::string& codec) const;
  // s from a barrier to the end of it, here.
  double time_one(PerfOp op, size_t bytes, const std::string& codec, unsigned root = 0);
  // Of what the tensor holds, right behind the one before.
  void run_one(PerfOp op, size_t bytes, const std::string& codec, unsigned root = 0);
  // Of several, on the slowest rank, the one that such a share is below; known to all ranks.
  double time_all(PerfOp op, size_t bytes, const std::string& codec, int rounds, double share_below);
  // The least of several broadcasts to one rank; known to all ranks.
  double time_at(unsigned rank, size_t bytes, unsigned root, int rounds);
  std::vector<double> share(double own);
  LinkCost link_from(unsigned root, const PacketCost& packets, size_t& bytes);
  // Whether a core at one of its ends had no time left. Then what was measured is what the core can do.
  bool core_bound(unsigned root, unsigned next);
  std::vector<double> share_round_trips();

  Trainer& trainer_;
  const DaemonView& daemon_;
  const bool quick_;
  DaemonFacts facts_;
  bool first_here_ = true;
  std::string strategy_;              // the ring, or direct where the daemon does not allow that
  std::vector<std::string> allowed_;  // by the daemon
  std::vector<float> input_;
  float* tensor_ = nullptr;
  std::vector<double> round_trips_;  // of the ring's links, by sender
  std::vector<int64_t> speeds_;      // bytes per s, of the ranks' cards, where these say it
  bool unsteady_ = false;            // the repetitions of the last time_at() were further apart than kUnsteady
  double busy_ = 0;  // of the last time_at(): the share of it for which this rank's busiest worker worked
  size_t full_ = 0;  // bytes of a transfer that takes long enough
};

}  // namespace gradlane
