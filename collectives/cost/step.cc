// step.cc - the time of a training step: exchanges during backward, and what is left of them after it (pure)
#include "collectives/cost/step.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradlane {
namespace {

constexpr double kFloatBytes = 4;
constexpr double kMostRatio = 1000;

double step_of(const Calibration& calibration, std::span<const CodecCost* const> codecs,
               std::span<const PlanBucket> buckets, const StepCompute& compute, unsigned world,
               std::span<const StrategyId> strategies) {
  return plan_step(calibration, codecs, buckets, compute, world, strategies).time.step;
}

// Returns the limit of those buckets that together took longest.
PlanLimit main_limit(std::span<const BucketChoice> choices) {
  double seconds[5] = {};
  for (const BucketChoice& each : choices) seconds[static_cast<size_t>(each.time.limit)] += each.time.seconds;
  return static_cast<PlanLimit>(std::max_element(std::begin(seconds), std::end(seconds)) - std::begin(seconds));
}

void add_to(AllReduceTime& sum, const AllReduceTime& time) {
  sum.seconds += time.seconds;
  sum.latency += time.latency;
  sum.link += time.link;
  sum.codec += time.codec;
  sum.packets += time.packets;
  sum.memory += time.memory;
  sum.sent_bytes += time.sent_bytes;
  sum.sent_packets += time.sent_packets;
}

}  // namespace

std::vector<PlanBucket> buckets_of(const ModelTable& model, double bytes, double first_bytes) {
  std::vector<PlanBucket> buckets;
  const double all = model.work();
  double limit = first_bytes;
  double done = 0;
  PlanBucket open = {0, 0};
  for (auto layer = model.layers.rbegin(); layer != model.layers.rend(); ++layer) {
    open.elements += layer->elements;
    done += layer->work;
    open.ready = all > 0 ? done / all : 1;
    if (open.elements * kFloatBytes < limit) continue;
    buckets.push_back(open);
    open = {0, 0};
    limit = bytes;
  }
  if (open.elements > 0) buckets.push_back(open);
  if (!buckets.empty()) buckets.back().ready = 1;
  return buckets;
}

StepTime step_time(std::span<const PlanBucket> buckets, std::span<const double> seconds, const StepCompute& compute,
                   double lambda) {
  StepTime time;
  double now = 0;   // time since backward began, in s
  double done = 0;  // part of backward that is done, in s at full speed
  for (size_t i = 0; i < buckets.size(); ++i) {
    const double alone = std::max(0.0, buckets[i].ready * compute.backward - done);  // until the bucket is ready
    now += alone + seconds[i];
    done += alone;
    done += std::min(compute.backward - done, seconds[i] / lambda);
    time.exchange += seconds[i];
  }
  const double both = now + compute.backward - done;
  time.step = compute.forward + both;
  time.exposed = both - compute.backward;
  time.hidden = std::max(0.0, time.exchange - time.exposed);
  return time;
}

StepPlan plan_step(const Calibration& calibration, std::span<const CodecCost* const> codecs,
                   std::span<const PlanBucket> buckets, const StepCompute& compute, unsigned world,
                   std::span<const StrategyId> strategies) {
  StepPlan plan;
  std::vector<double> seconds;
  for (const PlanBucket& bucket : buckets) {
    BucketChoice& best = plan.choices.emplace_back();
    best.time.seconds = std::numeric_limits<double>::infinity();
    for (const CodecCost* codec : codecs) {
      const AllReduceChoice choice = fastest(calibration, *codec, bucket.elements, world, strategies);
      if (choice.time.seconds < best.time.seconds) best = {codec, choice.strategy, choice.time};
    }
    seconds.push_back(best.time.seconds);
    add_to(plan.sum, best.time);
  }
  plan.sum.limit = main_limit(plan.choices);
  plan.time = step_time(buckets, seconds, compute, calibration.lambda);
  return plan;
}

std::optional<double> ratio_enough(const Calibration& calibration, std::span<const PlanBucket> buckets,
                                   const StepCompute& compute, unsigned world, std::span<const StrategyId> strategies,
                                   double slack) {
  const auto enough = [&](double ratio) {
    CodecCost codec;
    codec.bytes = kFloatBytes / ratio;
    const CodecCost* const one[] = {&codec};
    return step_of(calibration, one, buckets, compute, world, strategies) <= compute.seconds() * (1 + slack);
  };
  if (enough(1)) return 1;
  if (!enough(kMostRatio)) return std::nullopt;
  double less = 1;
  double most = kMostRatio;
  while (most / less > 1.001) {
    const double middle = std::sqrt(less * most);
    (enough(middle) ? most : less) = middle;
  }
  return most;
}

PlanRates rates_that_pay(Calibration calibration, const CodecCost& plain, std::span<const CodecCost* const> codecs,
                         std::span<const PlanBucket> buckets, const StepCompute& compute, unsigned world,
                         std::span<const StrategyId> strategies, double gain, double least, double most) {
  const CodecCost* const only[] = {&plain};
  const auto brings = [&](double rate) {
    calibration.link.bandwidth = rate;
    const double raw = step_of(calibration, only, buckets, compute, world, strategies);
    return step_of(calibration, codecs, buckets, compute, world, strategies) < raw * (1 - gain);
  };
  PlanRates rates;
  calibration.link.bandwidth = most;
  rates.limit = plan_step(calibration, only, buckets, compute, world, strategies).sum.limit;
  if (brings(most)) {
    rates.kind = PlanRates::Kind::kAlways;
    rates.rate = most;
    return rates;
  }
  double nothing = most;
  double something = most;
  do {
    if (something <= least) return rates;
    nothing = something;
    something = std::max(nothing / 2, least);
  } while (!brings(something));
  while (nothing / something > 1.01) {
    const double middle = std::sqrt(something * nothing);
    (brings(middle) ? something : nothing) = middle;
  }
  rates.kind = PlanRates::Kind::kBelow;
  rates.rate = nothing;
  return rates;
}

}  // namespace gradlane
