// data.h - what the ranks of `gradlane perf` put in, and whether the right thing came out
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec.h"
#include "tools/perf/plan.h"
#include "tools/simnet/tensors.h"

namespace gradlane {

// Every rank can compute the input of all others, and so the true result, without asking. Floating types have the
// plan's distribution, integers any value.
class PerfData {
 public:
  PerfData(const PerfPlan& plan, unsigned rank, unsigned world);

  // The input of this rank: `count` elements of the plan's type.
  void fill(void* tensor, size_t count) const;

  // Elements of a result, of a tensor of `count` elements, that are not what they should be: further from the true sum,
  // computed in a wider type, than the codec promises (compress/codec.h), as often as the strategy rounds, and the
  // rounding of fp32 sums explains; integers: not exactly the sum. Where nothing is added and nothing compressed: not
  // exactly what was sent. Minima and maxima: not exactly these.
  [[nodiscard]] size_t count_wrong(PerfOp op, const StrategyId& strategy, const PerfCodec& codec, const void* result,
                                   size_t count) const;

 private:
  const PerfPlan& plan_;
  unsigned rank_;
  unsigned world_;
  SimInputs inputs_;
};

// Equal for equal bytes, and for others almost never.
[[nodiscard]] uint64_t hash_bytes(const void* data, size_t bytes) noexcept;

}  // namespace gradlane
