// step.h - a training step: exchanges beside backward, and what of them is left over (pure)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/plan/cost.h"
#include "collectives/plan/models.h"

namespace gradlane {

// What is exchanged together, and when it is there.
struct PlanBucket {
  double elements = 0;
  double ready = 1;  // the share of backward after which the last of its gradients is there
};

// As DistributedDataParallel makes them: from the last layer on, each closed by the layer that fills it; the first one
// is small, so that there is something to exchange early. Bytes of floats.
[[nodiscard]] std::vector<PlanBucket> buckets_of(const ModelTable& model, double bytes = 25 * 1048576.0,
                                                 double first_bytes = 1048576.0);

// s, of one step on one node, with nothing to exchange.
struct StepCompute {
  double forward = 0;
  double backward = 0;

  [[nodiscard]] double seconds() const noexcept { return forward + backward; }
};

struct StepTime {
  double step = 0;
  double exchange = 0;  // of all buckets
  double exposed = 0;   // what the step is longer for it
  double hidden = 0;    // the rest
};

// Buckets go one after the other, each when it is ready and the one before has ended. While one is under way, what is
// left of backward goes at 1 / lambda of its speed, and at its own while there is none: an exchange of e s costs
// backward (1 - 1 / lambda) e at most. MLSys'22 charges lambda on all of backward, however short the exchange:
//   T = max(lambda T_backward, (k - 1) T_bucket) + T_bucket
// of k equal buckets, the last one ready at the end. Here it is, the others being ready at the beginning,
//   T = max(T_backward + (1 - 1 / lambda) (k - 1) T_bucket, (k - 1) T_bucket) + T_bucket,
// which is the same where the buckets take as long as lambda T_backward, and less where they are shorter.
[[nodiscard]] StepTime step_time(std::span<const PlanBucket> buckets, std::span<const double> seconds,
                                 const StepCompute& compute, double lambda);

// How a bucket goes.
struct BucketChoice {
  const CodecCost* codec = nullptr;
  StrategyId strategy;
  AllReduceTime time;
};

struct StepPlan {
  StepTime time;
  std::vector<BucketChoice> choices;  // of each bucket
  AllReduceTime sum;                  // over them: shares of the resources; its limit is what takes most of the time
};

// Each bucket by the fastest of the codecs and strategies: with one codec, what that brings; with several, SeCoPa's
// choice with the model of cost.h. There must be one of each that can go.
[[nodiscard]] StepPlan plan_step(const Calibration& calibration, std::span<const CodecCost* const> codecs,
                                 std::span<const PlanBucket> buckets, const StepCompute& compute, unsigned world,
                                 std::span<const StrategyId> strategies);

// How much smaller bytes must get for the step to be within `slack` of computing alone, if a codec took no time.
// None: even 1000 times do not suffice, as latency or packets take too long; 1: it is so already.
[[nodiscard]] std::optional<double> ratio_enough(const Calibration& calibration, std::span<const PlanBucket> buckets,
                                                 const StepCompute& compute, unsigned world,
                                                 std::span<const StrategyId> strategies, double slack = 0.1);

// At which rates of links a codec brings something.
struct PlanRates {
  enum class Kind : uint8_t { kNowhere, kBelow, kAlways };
  Kind kind = Kind::kNowhere;
  double rate = 0;                        // bytes per s: below, it brings something; kAlways: the highest
  PlanLimit limit = PlanLimit::kLatency;  // what binds `plain` at the highest rate: why links do not matter any more
};
// Where the best of the codecs saves `gain` or more of the step with `plain`, of rates from `least` to `most`: the
// highest such rate, found in octaves from above and then by bisection.
[[nodiscard]] PlanRates rates_that_pay(Calibration calibration, const CodecCost& plain,
                                       std::span<const CodecCost* const> codecs, std::span<const PlanBucket> buckets,
                                       const StepCompute& compute, unsigned world,
                                       std::span<const StrategyId> strategies, double gain = 0.03, double least = 1e6,
                                       double most = 125e9);

}  // namespace gradlane
