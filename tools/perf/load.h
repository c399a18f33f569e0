// load.h - the background load: a search for the traffic that causes the tail that is asked for (the same calls on all
// ranks)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tools/perf/background.h"
#include "tools/perf/rounds.h"
#include "tools/perf/settings.h"
#include "tools/perf/trainer.h"

namespace gradlane {

// Sends bursts of other traffic. One of every 16 operations begins with a burst; the seed selects which. So p50 is the
// median of operations without a burst, and p99 is among the slower operations with one. Before a row is measured,
// tune() searches for a size of bursts that makes p99 `aim` times p50. The percentiles of the row show the ratio that
// was reached.
class Load {
 public:
  // Runs a number of operations and returns the slowest rank's time of each. The times are the same on all ranks.
  using Run = std::function<std::vector<double>(unsigned operations, const PerfStart& before)>;

  // All ranks must construct this object at the same time. If PerfSettings::background is 0, no traffic is sent.
  Load(Trainer& trainer, const PerfSettings& plan);

  // Finds the number of bytes that each rank sends in a burst.
  void tune(const Run& run);
  // Returns the function that starts bursts while a row is measured. It is empty if there is no load.
  [[nodiscard]] PerfStart bursts();
  // Throws PerfError if a flow of the load has ended.
  void check() const;

  [[nodiscard]] uint64_t burst_bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<Background> background_;
  double aim_;
  uint64_t seed_;
  uint64_t bytes_ = 0;
};

}  // namespace gradlane
