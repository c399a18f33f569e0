// rounds.h - the operations of a row, one after the other or several at a time, and how long each takes
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tools/perf/plan.h"
#include "tools/perf/trainer.h"

namespace gradlane {

using PerfClock = std::chrono::steady_clock;

[[nodiscard]] inline int64_t nanos_since(PerfClock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(PerfClock::now() - start).count();
}

// What operations of a row are done with.
struct PerfTensors {
  const void* input = nullptr;
  std::vector<void*> tensors;  // one for each operation that is in flight at a time
  size_t count = 0;            // elements,
  size_t bytes = 0;            //   bytes of each
  unsigned together = 1;       // operations that a tensor is divided among
  float* states = nullptr;     // null: none are kept
};

// Nanoseconds on this rank.
struct PerfTimes {
  std::vector<int64_t> each;  // of each operation, from its start to its end as a trainer sees it that waits in order
  int64_t all = 0;            // of all of them; one after the other, without the barriers between
};

// Before the start of operation `number`.
using PerfStart = std::function<void(unsigned number)>;

// One at a time each begins after a barrier, when all ranks are ready; several at a time, only the first does: each
// later one begins when the oldest has ended, and its tensor is filled within the time of all.
[[nodiscard]] PerfTimes run_rounds(Trainer& trainer, const PerfPlan& plan, const PerfWay& way,
                                   const PerfTensors& tensors, unsigned operations, const PerfStart& before);

}  // namespace gradlane
