// rounds.h - runs of the operations of a row, one after the other or several at a time, and the time that each takes
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tools/perf/settings.h"
#include "tools/perf/trainer.h"

namespace gradlane {

using PerfClock = std::chrono::steady_clock;

[[nodiscard]] inline int64_t nanos_since(PerfClock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(PerfClock::now() - start).count();
}

// Tensors and states that the operations of a row use.
struct PerfTensors {
  const void* input = nullptr;
  std::vector<void*> tensors;          // one for each operation that is in flight at the same time
  size_t count = 0;                    // elements of each tensor
  size_t bytes = 0;                    // bytes of each tensor
  unsigned together = 1;               // operations that a tensor is divided among
  float* states = nullptr;             // null: no states are kept
  std::span<const uint8_t> encoded{};  // the encoded contribution; empty: contributions are `input`
  std::span<uint8_t> runs{};           // for results as runs; empty: they are floats in `tensors`
};

// Times on this rank, in ns.
struct PerfTimes {
  // time of each operation, from its start until wait() returns; the caller waits for operations in order
  std::vector<int64_t> each;
  // If contributions are encoded: times of the same operations with floats, and with results as runs.
  std::vector<int64_t> floats;
  std::vector<int64_t> runs;
  int64_t all = 0;  // time of all operations; if they run one at a time, without the barriers between them
};

// Called before operation `number` starts.
using PerfStart = std::function<void(unsigned number)>;

// Runs a number of operations. If they run one at a time, each begins after a barrier, when all ranks are ready. If
// several run at a time, only the first begins after a barrier. Each later one begins when the oldest has ended.
// `PerfTimes::all` then includes the time to fill tensors. If contributions are encoded, the same operation with floats
// runs before each operation.
[[nodiscard]] PerfTimes run_rounds(Trainer& trainer, const PerfSettings& plan, const PerfCandidate& candidate,
                                   const PerfTensors& tensors, unsigned operations, const PerfStart& before);

}  // namespace gradlane
