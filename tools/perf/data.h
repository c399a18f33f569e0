// data.h - what the ranks of `gradlane perf` put in, and whether the right thing came out
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec.h"
#include "sim/tensors.h"
#include "tools/perf/plan.h"

namespace gradlane {

// Every rank can compute the input of all others, and so the true result, without asking. Floating types have the
// plan's distribution, integers any value.
class PerfData {
 public:
  // `apart`: what each rank puts in is encoded by itself, as it is but where nodes add up their own ranks' first.
  PerfData(const PerfPlan& plan, unsigned rank, unsigned world, bool apart = true);

  // The input of this rank: `count` elements of the plan's type.
  void fill(void* tensor, size_t count) const;

  // Elements of a result, of a tensor of `count` elements, that are not what they should be: further from the true sum,
  // computed in a wider type, than the codec promises (compress/codec.h), as often as the strategy rounds, and the
  // rounding of fp32 sums explains; integers: not exactly the sum. Where nothing is added and nothing compressed: not
  // exactly what was sent. Minima and maxima: not exactly these. Of codecs that add exactly: not to the bit what the
  // codec makes of the inputs (exact.h), where that can be known. Of those that promise no bound: not finite.
  // `divided`: the codec has not looked at it as a whole, so that not every bit is known.
  [[nodiscard]] size_t count_wrong(PerfOp op, const StrategyId& strategy, const PerfCodec& codec, const void* result,
                                   size_t count, bool divided = false) const;

  // The same of a sum for which all ranks kept states: not all that was put in and owed before, less what is owed
  // now. `paid` is that difference of all ranks' states, added up over ranks and arrays, for each element.
  [[nodiscard]] size_t count_unkept(PerfOp op, const PerfCodec& codec, const float* result, const double* paid,
                                    size_t count) const;

 private:
  [[nodiscard]] size_t count_beyond(PerfOp op, const StrategyId& strategy, const PerfCodec& codec, const void* result,
                                    size_t count) const;
  [[nodiscard]] size_t count_inexact(PerfOp op, const PerfCodec& codec, const void* result, size_t count) const;

  const PerfPlan& plan_;
  unsigned rank_;
  unsigned world_;
  bool apart_;
  SimInputs inputs_;
};

// Equal for equal bytes, and for others almost never.
[[nodiscard]] uint64_t hash_bytes(const void* data, size_t bytes) noexcept;

}  // namespace gradlane
