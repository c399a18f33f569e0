// tensors.h - what the ranks of a simulated operation put in, and what must come out
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/operation.h"

namespace gradlane {

// The input of every rank: one table of random values, again and again, from another place on for each rank. The table
// has a prime number of values, so that blocks that change places do not go unnoticed.
class SimInputs {
 public:
  SimInputs(std::string_view data, uint64_t seed);

  static constexpr size_t kMaxRun = 8192;
  // Elements first, first + 1, ... of the tensor of a rank; at most kMaxRun of them.
  [[nodiscard]] std::span<const float> values(unsigned rank, size_t first, size_t count) const;
  void fill(unsigned rank, std::span<float> tensor) const;
  // The same values from element `first` on.
  [[nodiscard]] SimInputs from(size_t first) const;
  // Each rank gets to it at another element; place < 65521.
  void put(size_t place, float value);

 private:
  uint64_t seed_;
  size_t from_ = 0;
  std::vector<float> table_;  // and its beginning once more, so that runs need not be cut
};

// Of an operation, what its random numbers follow from, and what it keeps: for each rank, the state arrays of its
// codec, one behind the other, or nothing.
struct SimRun {
  uint32_t generation = 1;
  uint32_t number = 0;
  std::vector<std::vector<float>>* states = nullptr;
};

// A tensor for each rank, side by side.
class SimTensors {
 public:
  // Throws std::bad_alloc if there is no such memory.
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

// Elements over all ranks whose bits are not those that must be there after the operation; of an all-to-all, `tensors`
// are what has come out. That is computed here from
// the inputs and the definition of the operation with the codec alone (reference.h). Of `operation` its kind,
// reduction, root, strategy (none: the ring) and codec of the way back matter.
[[nodiscard]] uint64_t count_wrong(const Operation& operation, const Codec& codec, const SimInputs& inputs,
                                   const SimTensors& tensors, const SimRun& run = {});
// The same of sums that go by the ring; broadcasts are from rank 0.
[[nodiscard]] uint64_t count_wrong(OpKind kind, const Codec& codec, const SimInputs& inputs, const SimTensors& tensors);

}  // namespace gradlane
