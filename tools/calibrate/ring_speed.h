// ring_speed.h - links, packets, start and lambda of a running ring, measured by all of its ranks together
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/cost/calibration.h"
#include "tools/calibrate/checks.h"
#include "tools/calibrate/daemon_facts.h"
#include "tools/calibrate/host_speed.h"
#include "tools/perf/trainer.h"

namespace gradlane {

// One rank's part of the measurement. All ranks must call the same functions in the same order. Operations have time
// limits, so a missing rank is an error on all others (PerfError).
class RingSpeed {
 public:
  // `quick`: fewer rounds, and shorter transfers.
  RingSpeed(Trainer& trainer, const DaemonView& daemon, bool quick);
  ~RingSpeed();
  RingSpeed(const RingSpeed&) = delete;
  RingSpeed& operator=(const RingSpeed&) = delete;

  // Must be called first. Checks that all ranks are there, run the same command with the same options and MTU, and have
  // no fault. Throws SetupError if not. `host` is a hash for this machine. `fault` says why this rank cannot go on;
  // empty if it can.
  void meet(uint64_t host, const std::string& fault);
  // Throws SetupError on all ranks if one of them has a fault. `fault` is this rank's own; empty if it has none.
  void agree(const std::string& fault);
  // Returns the texts of all ranks, in the order of ranks. Longer texts than 511 bytes are cut.
  [[nodiscard]] std::vector<std::string> share_texts(const std::string& own);
  [[nodiscard]] const DaemonFacts& facts() const noexcept { return facts_; }
  // Returns whether this is the lowest rank on its host. The lowest rank measures the host, and writes its file.
  [[nodiscard]] bool lowest_on_host() const noexcept { return lowest_on_host_; }

  // Fill in links, then packets and start, then `place_ns` of the codecs, then lambda; call them in this order. Links
  // get the same figures on all ranks. measure_packets() and measure_codecs() subtract the host's codec and exchange
  // figures, so measure_host() must have filled these in.
  void measure_links(Calibration& calibration, const Progress& progress);
  void measure_packets(Calibration& calibration, const Progress& progress);
  void measure_codecs(Calibration& calibration, const Progress& progress);
  void measure_lambda(Calibration& calibration, const Progress& progress);
  // Times all-reduces, compares them with the predictions, and fills in `checks`.
  [[nodiscard]] std::vector<CheckedTime> check(Calibration& calibration, const Progress& progress);

 private:
  [[nodiscard]] bool by_ring() const noexcept { return strategy_ == "ring"; }
  [[nodiscard]] StrategyId candidate() const { return find_strategy(strategy_); }
  // Returns the strategy for measuring this codec; "" if no allowed strategy carries it.
  [[nodiscard]] std::string strategy_for(const std::string& codec) const;
  // Runs one operation after a barrier, and returns its time on this rank in s.
  double time_one(PerfOp op, size_t bytes, const std::string& codec, unsigned root = 0);
  // Runs one operation on the present values of the tensor, without a barrier.
  void run_one(PerfOp op, size_t bytes, const std::string& codec, unsigned root = 0);
  // Runs `rounds` operations, and takes the slowest rank's time of each. Returns a quantile of these times in s: the
  // time below which the share `share_below` of them lies. All ranks return the same time.
  double time_all(PerfOp op, size_t bytes, const std::string& codec, int rounds, double share_below);
  // Returns the least time in s of several broadcasts from `root` to `rank`. All ranks return the same time.
  double time_at(unsigned rank, size_t bytes, unsigned root, int rounds);
  std::vector<double> share(double own);
  LinkCost link_from(unsigned root, const PacketCost& packets, size_t& bytes);
  // Returns whether a core at one end of the link was busy all the time. If so, the measured bandwidth is the limit of
  // that core, not of the link.
  bool core_bound(unsigned root, unsigned next);
  std::vector<double> share_round_trips();

  Trainer& trainer_;
  const DaemonView& daemon_;
  const bool quick_;
  DaemonFacts facts_;
  bool lowest_on_host_ = true;
  std::string strategy_;              // the ring, or direct if the daemon does not allow the ring
  std::vector<std::string> allowed_;  // strategies that the daemon allows
  std::vector<float> input_;
  float* tensor_ = nullptr;
  std::vector<double> round_trips_;  // round-trip times of the ring's links in s, by sender
  std::vector<int64_t> speeds_;      // bytes per s of each rank's card; 0 if it reports none
  bool unsteady_ = false;            // repetitions of the latest time_at() differed by more than kUnsteady
  // share of the fastest repetition of the latest time_at() in which this rank's busiest worker worked
  double busy_ = 0;
  size_t full_ = 0;  // bytes of a transfer that is long enough to be timed on the slowest link
};

}  // namespace gradlane
