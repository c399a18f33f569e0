// tensors.h - the inputs of the ranks of a simulated operation, and a check of the results
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/operation.h"

namespace gradlane {

// The input of every rank: repetitions of one table of random values. Each rank begins at another place of the table.
// The length of the table is prime, so that a check notices blocks that have changed places.
class SimInputs {
 public:
  SimInputs(std::string_view data, uint64_t seed);

  static constexpr size_t kMaxRun = 8192;
  // Returns elements first, first + 1, ... of a rank's tensor; `count` is at most kMaxRun.
  [[nodiscard]] std::span<const float> values(unsigned rank, size_t first, size_t count) const;
  void fill(unsigned rank, std::span<float> tensor) const;
  // Returns the same inputs from element `first` on.
  [[nodiscard]] SimInputs from(size_t first) const;
  // Sets a value of the table; place < 65521. Each rank has it at another element.
  void put(size_t place, float value);

 private:
  uint64_t seed_;
  size_t from_ = 0;
  std::vector<float> table_;  // the table and, after it, a copy of its beginning, so that no run has to be cut
};

// The generation and the number of an operation, from which its random numbers follow, and the state that ranks keep
// between operations. For each rank, `states` has the state arrays of its codec, one after the other, or nothing.
struct SimRun {
  uint32_t generation = 1;
  uint32_t number = 0;
  std::vector<std::vector<float>>* states = nullptr;
};

// One tensor per rank, in one mapping of memory.
class SimTensors {
 public:
  // Throws std::bad_alloc if there is not enough memory.
  SimTensors(unsigned ranks, size_t elements);
  ~SimTensors();
  SimTensors(const SimTensors&) = delete;
  SimTensors& operator=(const SimTensors&) = delete;

  [[nodiscard]] unsigned ranks() const noexcept { return ranks_; }
  [[nodiscard]] size_t elements() const noexcept { return elements_; }
  [[nodiscard]] std::span<float> of(unsigned rank) const noexcept { return {floats_ + rank * elements_, elements_}; }

 private:
  unsigned ranks_;
  size_t elements_;
  size_t mapped_;
  float* floats_;
};

// Returns the number of elements, over all ranks, whose bits differ from the expected result of the operation. The
// expected bits are computed here from the inputs, the definition of the operation and the codec alone (reference.h).
// For an all-to-all, `tensors` are the outputs. Only these fields of `operation` matter: kind, reduction, root,
// strategy (none: the ring) and back_codec. If the codec scans tensors, keeps states or uses random numbers, count and
// tag matter too.
[[nodiscard]] uint64_t count_wrong(const Operation& operation, const Codec& codec, const SimInputs& inputs,
                                   const SimTensors& tensors, const SimRun& run = {});
// Does the same for an operation with the strategy ring and, for kinds that have a root, root 0.
[[nodiscard]] uint64_t count_wrong(OpKind kind, const Codec& codec, const SimInputs& inputs, const SimTensors& tensors);

}  // namespace gradlane
