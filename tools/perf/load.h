// load.h - how much other traffic it takes for a tail as long as is asked for (all ranks alike)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tools/perf/background.h"
#include "tools/perf/plan.h"
#include "tools/perf/rounds.h"
#include "tools/perf/trainer.h"

namespace gradlane {

// A burst begins with one of 16 operations, by the seed which: p50 is then that of those without, p99 that of the
// slower ones with. Bursts that are long enough to make these `aim` times as long are looked for before a row is
// measured; what was reached is to be seen in its percentiles.
class Load {
 public:
  // Slowest rank's times of so many operations, the same on all ranks.
  using Run = std::function<std::vector<double>(unsigned operations, const PerfStart& before)>;

  // All ranks at once. Without a background load in the plan there is none.
  Load(Trainer& trainer, const PerfPlan& plan);

  // Finds the bytes of a burst of each rank.
  void tune(const Run& run);
  // For what is measured; empty: there is no load.
  [[nodiscard]] PerfStart bursts();
  // Throws PerfError if the load has come to an end.
  void check() const;

  [[nodiscard]] uint64_t burst_bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<Background> background_;
  double aim_;
  uint64_t seed_;
  uint64_t bytes_ = 0;
};

}  // namespace gradlane
