// secopa.cc - SeCoPa, the plan of HiPress (SOSP 2021) (pure)
#include "collectives/cost/secopa.h"

#include <algorithm>
#include <limits>

namespace gradlane {
namespace {

double secopa_ms(const SecopaCosts& costs, SecopaChoice way, unsigned nodes, double elements, const SecopaPlan& plan) {
  const double n = nodes;
  const double k = plan.partitions;
  const double part = elements / k;
  const double sent = plan.compress ? part * costs.ratio : part;
  double ms = (n - 1) * costs.merge;
  if (way == SecopaChoice::kRing) {
    ms += 2 * (n - 1) * costs.send.ms(sent);
    if (plan.compress) ms += n * (costs.encode.ms(part) + costs.decode.ms(sent));
  } else {
    ms += costs.gather.ms(sent) + costs.broadcast.ms(sent);
    if (plan.compress) {
      ms += std::min(k + 1, n) * costs.encode.ms(part) + std::min(n - 1 + k, 2 * (n - 1)) * costs.decode.ms(sent);
    }
  }
  return ms;
}

}  // namespace

double SecopaCurve::ms(double elements) const noexcept {
  const double threshold = std::max(0.0, (overhead - constant) / slope);
  return elements < threshold ? overhead : slope * elements + constant;
}

std::optional<SecopaCosts> hipress_costs(unsigned nodes) noexcept {
  SecopaCosts costs;
  costs.encode = {1.4133e-8, 5.8938e-2, .05408};
  costs.decode = {6.2041e-9, .13956, .07287};
  costs.send = {8.5005e-7, .20337, .09766};
  switch (nodes) {
    case 4:
      costs.gather = {2.7156e-6, .4193, .15573};
      costs.broadcast = {2.7157e-6, .22156, .1482};
      return costs;
    case 8:
      costs.gather = {6.1167e-6, .80768, .28778};
      costs.broadcast = {6.1172e-6, .27285, .29666};
      return costs;
    case 16:
      costs.gather = {1.2937e-5, 1.4406, .59503};
      costs.broadcast = {1.2915e-5, .45538, .58353};
      return costs;
    default:
      return std::nullopt;
  }
}

SecopaPlan secopa_plan(const SecopaCosts& costs, SecopaChoice way, unsigned nodes, double elements) noexcept {
  SecopaPlan best;
  best.ms = std::numeric_limits<double>::infinity();
  for (const bool compress : {false, true}) {
    for (unsigned k = 1; k <= nodes; ++k) {
      SecopaPlan plan = {compress, k, 0};
      plan.ms = secopa_ms(costs, way, nodes, elements, plan);
      if (plan.ms < best.ms) best = plan;
    }
  }
  return best;
}

std::optional<double> secopa_threshold(const SecopaCosts& costs, SecopaChoice way, unsigned nodes,
                                       double most) noexcept {
  if (!secopa_plan(costs, way, nodes, most).compress) return std::nullopt;
  double less = 0;
  while (most - less > 1) {
    const double middle = (less + most) / 2;
    (secopa_plan(costs, way, nodes, middle).compress ? most : less) = middle;
  }
  return most;
}

}  // namespace gradlane
