// step.h - the time of a training step: exchanges during backward, and what is left of them after it (pure)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/cost/cost.h"
#include "collectives/cost/models.h"

namespace gradlane {

// Gradients that are exchanged together, and the time when they are ready.
struct PlanBucket {
  double elements = 0;
  double ready = 1;  // share of backward after which the last of its gradients is ready
};

// Returns buckets as DistributedDataParallel makes them. They fill from the last layer on, and the layer that fills a
// bucket closes it. The first bucket is small (`first_bytes`), so that an exchange can start early. Sizes are bytes of
// floats.
[[nodiscard]] std::vector<PlanBucket> buckets_of(const ModelTable& model, double bytes = 25 * 1048576.0,
                                                 double first_bytes = 1048576.0);

// Times in s of one step on one node, without an exchange.
struct StepCompute {
  double forward = 0;
  double backward = 0;

  [[nodiscard]] double seconds() const noexcept { return forward + backward; }
};

struct StepTime {
  double step = 0;
  double exchange = 0;  // time of all buckets
  double exposed = 0;   // time by which it makes the step longer
  double hidden = 0;    // part of `exchange` during which backward runs
};

// Returns the time of a step. Buckets go one after the other: each starts when it is ready and the one before has
// ended. During an exchange backward runs at 1 / lambda of its speed, otherwise at full speed. So an exchange of e s
// costs backward at most (1 - 1 / lambda) e. MLSys'22 applies lambda to all of backward, however short the exchange:
//   T = max(lambda T_backward, (k - 1) T_bucket) + T_bucket
// This is for k equal buckets, the last one ready at the end. If the others are ready at the beginning, the result here
// is
//   T = max(T_backward + (1 - 1 / lambda) (k - 1) T_bucket, (k - 1) T_bucket) + T_bucket,
// which is the same if the buckets take as long as lambda T_backward, and less if they are shorter.
[[nodiscard]] StepTime step_time(std::span<const PlanBucket> buckets, std::span<const double> seconds,
                                 const StepCompute& compute, double lambda);

// The codec, strategy and time of a bucket.
struct BucketChoice {
  const CodecCost* codec = nullptr;
  StrategyId strategy;
  AllReduceTime time;
};

struct StepPlan {
  StepTime time;
  std::vector<BucketChoice> choices;  // one for each bucket
  AllReduceTime sum;                  // sum over the buckets; its limit is the resource that takes most of the time
};

// Returns a plan that uses the fastest of the codecs and strategies for each bucket. With one codec, it shows what that
// codec saves. With several, it is SeCoPa's choice with the model of cost.h. There must be a codec that one of the
// strategies can carry.
[[nodiscard]] StepPlan plan_step(const Calibration& calibration, std::span<const CodecCost* const> codecs,
                                 std::span<const PlanBucket> buckets, const StepCompute& compute, unsigned world,
                                 std::span<const StrategyId> strategies);

// Returns the factor by which bytes must shrink for the step to be within `slack` of computing alone, if the codec took
// no time. None: not even a factor of 1000 is enough, because latency or packets take too long. 1: no compression is
// needed.
[[nodiscard]] std::optional<double> ratio_enough(const Calibration& calibration, std::span<const PlanBucket> buckets,
                                                 const StepCompute& compute, unsigned world,
                                                 std::span<const StrategyId> strategies, double slack = 0.1);

// The link rates at which a codec saves time.
struct PlanRates {
  enum class Kind : uint8_t { kNowhere, kBelow, kAlways };
  Kind kind = Kind::kNowhere;
  double rate = 0;                        // bytes per s: a codec saves time below it; kAlways: the highest rate
  PlanLimit limit = PlanLimit::kLatency;  // limit of `plain` at the highest rate: why faster links do not matter
};
// Returns the highest rate from `least` to `most` at which the best of the codecs saves `gain` or more of the step with
// `plain`. It is found in octaves from above, and then by bisection.
[[nodiscard]] PlanRates rates_that_pay(Calibration calibration, const CodecCost& plain,
                                       std::span<const CodecCost* const> codecs, std::span<const PlanBucket> buckets,
                                       const StepCompute& compute, unsigned world,
                                       std::span<const StrategyId> strategies, double gain = 0.03, double least = 1e6,
                                       double most = 125e9);

}  // namespace gradlane
