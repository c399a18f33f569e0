// step.h - the time of a training step: exchanges during backward, and what is left of them after it (pure)
#pragma once

#include <cstdint>
#include <functional>
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
  double exchange = 0;  // time of all buckets, if nothing else used the cores
  double exposed = 0;   // time by which it, and step_overhead(), make the step longer
  double hidden = 0;    // part of `exchange` during which backward runs
};

// The exchange of one bucket.
struct ExchangeCost {
  double seconds = 0;  // duration if nothing else uses the node's cores
  double busy = 0;     // core-seconds that it takes on one node
};

// The cores of a node, which an exchange and backward share.
struct StepHost {
  double cores = 0;   // 0: unknown, enough for both
  double lambda = 1;  // factor by which backward is slower during an exchange, if `cores` is unknown
};

// Returns the time of a step. Buckets go one after the other: each starts when it is ready and the one before has
// ended. If the cores are unknown, backward runs at 1 / lambda of its speed during an exchange, and otherwise at full
// speed. So an exchange of e s costs backward at most (1 - 1 / lambda) e. MLSys'22 applies lambda to all of backward,
// however short the exchange:
//   T = max(lambda T_backward, (k - 1) T_bucket) + T_bucket
// This is for k equal buckets, the last one ready at the end. If the others are ready at the beginning, the result here
// is
//   T = max(T_backward + (1 - 1 / lambda) (k - 1) T_bucket, (k - 1) T_bucket) + T_bucket,
// which is the same if the buckets take as long as lambda T_backward, and less if they are shorter.
//
// If the cores are known, backward wants one of them, or all if a node has less than one, and an exchange wants
// busy / seconds. If that is more than there are, both share as threads do in the Linux scheduler: the one that wants
// less gets that, up to half of the cores, and the other one gets the rest. Both then take longer in proportion.
// The times in `compute` are those of nodes that compute on these cores, so they do not change with `cores`.
[[nodiscard]] StepTime step_time(std::span<const PlanBucket> buckets, std::span<const ExchangeCost> exchanges,
                                 const StepCompute& compute, const StepHost& host);

// The codec, strategy and time of a bucket.
struct BucketChoice {
  const CodecCost* codec = nullptr;
  StrategyId strategy;
  AllReduceTime time;
  double busy = 0;  // core-seconds on one node
};

struct StepPlan {
  StepTime time;
  std::vector<BucketChoice> choices;  // one for each bucket
  AllReduceTime sum;                  // sum over the buckets; its limit is the resource that takes most of the time
  double busy = 0;                    // sum over the buckets
};

// Returns the time in s that a training takes for a step beyond computing and exchanging, on a host whose cores are
// known: DistributedDataParallel copies gradients to buckets and results back, ranks wait for the slowest one, and
// computing and exchanging share caches. The two constants were chosen by the half of the set-ups of
// docs/results/steps.md that is not held out. The share of computing is for nodes with less than two cores each; others
// were not measured.
[[nodiscard]] double step_overhead(std::span<const PlanBucket> buckets, const StepCompute& compute,
                                   const StepHost& host) noexcept;

// Returns the exchange of a bucket of N elements.
using BucketExchange = std::function<BucketChoice(double elements)>;
[[nodiscard]] StepPlan plan_step(const StepHost& host, const BucketExchange& exchange,
                                 std::span<const PlanBucket> buckets, const StepCompute& compute);

// Returns the fastest of the codecs and strategies for a bucket, by the model of cost.h.
[[nodiscard]] BucketChoice fastest_codec(const Calibration& calibration, std::span<const CodecCost* const> codecs,
                                         double elements, unsigned world, std::span<const StrategyId> strategies);

// Returns a plan that uses fastest_codec() for each bucket. With one codec, it shows what that codec saves. With
// several, it is SeCoPa's choice with the model of cost.h. There must be a codec that one of the strategies can carry.
[[nodiscard]] StepPlan plan_step(const Calibration& calibration, std::span<const CodecCost* const> codecs,
                                 std::span<const PlanBucket> buckets, const StepCompute& compute, unsigned world,
                                 std::span<const StrategyId> strategies);

// The time of a step in s, as a function of one figure.
using StepOf = std::function<double(double figure)>;

// Returns the factor by which bytes must shrink for the step to be at most `longest` s. `step` returns the time of a
// step whose bytes are smaller by a factor. None: not even a factor of 1000 is enough, because latency or packets take
// too long. 1: no compression is needed.
[[nodiscard]] std::optional<double> ratio_enough(const StepOf& step, double longest);

// The link rates at which a codec saves time.
struct PlanRates {
  enum class Kind : uint8_t { kNowhere, kBelow, kAlways };
  Kind kind = Kind::kNowhere;
  double rate = 0;  // bytes per s: a codec saves time below it; kAlways: the highest rate
};
// Returns the highest rate from `least` to `most` at which a step is faster than that of `baseline` by `gain` or more.
// Both are functions of the rate. It is found in octaves from above, and then by bisection.
[[nodiscard]] PlanRates rates_that_pay(const StepOf& baseline, const StepOf& step, double gain = 0.03,
                                       double least = 1e6, double most = 125e9);

}  // namespace gradlane
