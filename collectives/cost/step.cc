// step.cc - the time of a training step: exchanges during backward, and what is left of them after it (pure)
#include "collectives/cost/step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gradlane {
namespace {

constexpr double kFloatBytes = 4;
constexpr double kMostRatio = 1000;

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

// Speeds of backward and of an exchange while both run, as shares of their speeds alone.
struct StepSpeeds {
  double backward = 1;
  double exchange = 1;
};

StepSpeeds speeds_of(const ExchangeCost& exchange, const StepHost& host) {
  if (host.cores <= 0) return {1 / host.lambda, 1};
  const double backward = std::min(1.0, host.cores);
  const double wanted = exchange.seconds > 0 ? exchange.busy / exchange.seconds : 0;
  if (backward + wanted <= host.cores) return {};
  const double less = std::min({backward, wanted, host.cores / 2});
  const double rest = host.cores - less;
  const auto [mine, others] = backward <= wanted ? std::pair(less, rest) : std::pair(rest, less);
  return {std::min(1.0, mine / backward), std::min(1.0, others / wanted)};
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

StepTime step_time(std::span<const PlanBucket> buckets, std::span<const ExchangeCost> exchanges,
                   const StepCompute& compute, const StepHost& host) {
  StepTime time;
  double now = 0;   // time since backward began, in s
  double done = 0;  // part of backward that is done, in s at full speed
  for (size_t i = 0; i < buckets.size(); ++i) {
    const double alone = std::max(0.0, buckets[i].ready * compute.backward - done);  // until the bucket is ready
    now += alone;
    done += alone;
    const double seconds = exchanges[i].seconds;
    const StepSpeeds speeds = speeds_of(exchanges[i], host);
    // Both run until the exchange or backward ends. The rest of the exchange then runs alone.
    const double both = std::min(seconds / speeds.exchange, (compute.backward - done) / speeds.backward);
    done = std::min(compute.backward, done + both * speeds.backward);
    now += both + seconds - both * speeds.exchange;
    time.exchange += seconds;
  }
  const double both = now + compute.backward - done;
  time.step = compute.forward + both;
  time.exposed = both - compute.backward;
  time.hidden = std::max(0.0, time.exchange - time.exposed);
  return time;
}

double step_overhead(std::span<const PlanBucket> buckets, const StepCompute& compute, const StepHost& host) noexcept {
  constexpr double kOfCompute = 0.15;
  constexpr double kCopySeconds = 0.3e-9;  // per byte of gradients, on a core of its own
  if (host.cores <= 0) return 0;
  double bytes = 0;
  for (const PlanBucket& each : buckets) bytes += kFloatBytes * each.elements;
  return (host.cores < 2 ? kOfCompute * compute.seconds() : 0) + kCopySeconds * bytes / std::min(1.0, host.cores);
}

StepPlan plan_step(const StepHost& host, const BucketExchange& exchange, std::span<const PlanBucket> buckets,
                   const StepCompute& compute) {
  StepPlan plan;
  std::vector<ExchangeCost> costs;
  for (const PlanBucket& bucket : buckets) {
    const BucketChoice& best = plan.choices.emplace_back(exchange(bucket.elements));
    costs.push_back({best.time.seconds, best.busy});
    add_to(plan.sum, best.time);
    plan.busy += best.busy;
  }
  plan.sum.limit = main_limit(plan.choices);
  plan.time = step_time(buckets, costs, compute, host);
  const double around = step_overhead(buckets, compute, host);
  plan.time.step += around;
  plan.time.exposed += around;
  return plan;
}

BucketChoice fastest_codec(const Calibration& calibration, std::span<const CodecCost* const> codecs, double elements,
                           unsigned world, std::span<const StrategyId> strategies) {
  BucketChoice best;
  best.time.seconds = std::numeric_limits<double>::infinity();
  for (const CodecCost* codec : codecs) {
    const AllReduceChoice choice = fastest(calibration, *codec, elements, world, strategies);
    if (choice.time.seconds < best.time.seconds) best = {codec, choice.strategy, choice.time, 0};
  }
  // The lanes share these times.
  best.busy = (best.time.codec + best.time.packets + best.time.memory) * std::max(1U, calibration.lanes);
  return best;
}

StepPlan plan_step(const Calibration& calibration, std::span<const CodecCost* const> codecs,
                   std::span<const PlanBucket> buckets, const StepCompute& compute, unsigned world,
                   std::span<const StrategyId> strategies) {
  const auto exchange = [&](double elements) {
    return fastest_codec(calibration, codecs, elements, world, strategies);
  };
  return plan_step({calibration.cores, calibration.lambda}, exchange, buckets, compute);
}

std::optional<double> ratio_enough(const StepOf& step, double longest) {
  const auto enough = [&](double ratio) { return step(ratio) <= longest; };
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

PlanRates rates_that_pay(const StepOf& baseline, const StepOf& step, double gain, double least, double most) {
  const auto brings = [&](double rate) { return step(rate) * (1 + gain) <= baseline(rate); };
  PlanRates rates;
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
