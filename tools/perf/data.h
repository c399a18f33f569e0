// data.h - inputs of the ranks of `gradlane perf`, and checks of the results
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec.h"
#include "sim/tensors.h"
#include "tools/perf/settings.h"

namespace gradlane {

// The inputs of all ranks. Every rank can compute the inputs of all others, and so the true result, without
// communication. Floats have the distribution PerfSettings::data. Integers can have any value.
class PerfData {
 public:
  // `apart` is true if each rank's input is encoded by itself. It is false if the daemon first adds up the inputs of a
  // node's trainers (local_reduce).
  PerfData(const PerfSettings& plan, unsigned rank, unsigned world, bool apart = true);

  // Fills `tensor` with the input of this rank: `count` elements of the type PerfSettings::type.
  void fill(void* tensor, size_t count) const;

  // Counts the elements of a result that are wrong. `count`: number of elements of the tensor.
  //
  // A sum of floats may differ from the true sum, computed in a wider type. The limit is the codec's error bound
  // (compress/codec.h) times the number of roundings of the strategy, plus the rounding of fp32 sums. A sum by a codec
  // that adds exactly must also equal, to the bit, the sum that exact.h computes, if exact.h can know that sum. A sum
  // by a codec that promises no bound must be finite. Sums of integers, minima and maxima must be exact. A copy without
  // compression must equal the bits that were sent.
  //
  // If `divided` is true, the codec has not scanned the tensor as a whole. Not every bit is known then, and exact.h is
  // not used.
  [[nodiscard]] size_t count_wrong(PerfOp op, const StrategyId& strategy, const PerfCodec& codec, const void* result,
                                   size_t count, bool divided = false) const;

  // Counts wrong elements of a sum for which all ranks kept states. The inputs and the states before the sum must equal
  // the result and the states after it. `state_change`: for each element, the states before the sum minus the states
  // after it, added up over all ranks and state arrays.
  [[nodiscard]] size_t count_wrong_with_states(PerfOp op, const PerfCodec& codec, const float* result,
                                               const double* state_change, size_t count) const;

 private:
  [[nodiscard]] size_t count_beyond(PerfOp op, const StrategyId& strategy, const PerfCodec& codec, const void* result,
                                    size_t count) const;
  [[nodiscard]] size_t count_inexact(PerfOp op, const PerfCodec& codec, const void* result, size_t count) const;

  const PerfSettings& plan_;
  unsigned rank_;
  unsigned world_;
  bool apart_;
  SimInputs inputs_;
};

}  // namespace gradlane
