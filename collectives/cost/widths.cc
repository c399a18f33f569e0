// widths.cc - a bit width for each layer of a gradient: the fewest bytes within an error (pure)
#include "collectives/cost/widths.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace gradlane {
namespace {

// docs/codec-format.md, bit planes.
constexpr size_t kGroup = 32;
constexpr unsigned kMostPlanes = 16;
constexpr unsigned kTagPlanes = 14;  // most planes that a tag can encode
constexpr double kPlaneBytes = 4;
constexpr double kEscapeBytes = 5;
constexpr int kBias = 127;
constexpr int kExact = 23;  // values from this many doublings of the step on are not rounded

// Returns the number of planes w that hold q: -2^(w-1) <= q < 2^(w-1).
unsigned planes_of(double q) noexcept {
  if (q == 0) return 0;
  constexpr double kMost = 32768;
  if (q >= kMost || q < -kMost) return kMostPlanes + 1;
  const auto whole = static_cast<int32_t>(q);
  return static_cast<unsigned>(std::bit_width(static_cast<uint32_t>(whole < 0 ? ~whole : whole))) + 1;
}

// ---- The dynamic program. A plan for the layers so far: what it costs, and how to find its choices.
struct Partial {
  WidthCost cost;
  uint32_t before = 0;  // index of its plan for one layer less
  uint32_t choice = 0;
};
using Frontier = std::vector<Partial>;  // in order: errors grow, bytes shrink

// Removes each plan for which another plan is at least as good in both bytes and error.
void keep_best(Frontier& plans) {
  std::ranges::sort(plans, [](const Partial& a, const Partial& b) {
    return a.cost.error != b.cost.error ? a.cost.error < b.cost.error : a.cost.bytes < b.cost.bytes;
  });
  size_t kept = 0;
  for (const Partial& each : plans) {
    if (kept == 0 || each.cost.bytes < plans[kept - 1].cost.bytes) plans[kept++] = each;
  }
  plans.resize(kept);
}

// Cuts the range of errors into equal parts, and keeps one plan in each: the last one, which has the fewest bytes.
void thin(Frontier& plans) {
  if (plans.size() <= kMostPlans) return;
  const double first = plans.front().cost.error;
  const double part = (plans.back().cost.error - first) / (kMostPlans - 1);
  const auto part_of = [&](const Partial& plan) { return std::floor((plan.cost.error - first) / part); };
  size_t kept = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    // The plan with the least error stays: later layers may need all of the allowed error.
    if (i == 0 || i + 1 == plans.size() || part_of(plans[i]) != part_of(plans[i + 1])) plans[kept++] = plans[i];
  }
  plans.resize(kept);
}

Frontier extended(const Frontier& plans, const std::vector<WidthCost>& choices, double allowed) {
  Frontier result;
  result.reserve(plans.size() * choices.size());
  for (uint32_t before = 0; before < plans.size(); ++before) {
    for (uint32_t choice = 0; choice < choices.size(); ++choice) {
      const WidthCost& sum = plans[before].cost;
      const WidthCost cost = {sum.bytes + choices[choice].bytes, sum.error + choices[choice].error};
      if (cost.error <= allowed) result.push_back({cost, before, choice});
    }
  }
  keep_best(result);
  thin(result);
  return result;
}

WidthCost cost_of(std::span<const std::vector<WidthCost>> layers, std::span<const size_t> choices) noexcept {
  WidthCost sum;
  for (size_t i = 0; i < layers.size(); ++i) {
    sum.bytes += layers[i][choices[i]].bytes;
    sum.error += layers[i][choices[i]].error;
  }
  return sum;
}

}  // namespace

void WidthHistogram::add(std::span<const float> floats) noexcept {
  for (size_t first = 0; first < floats.size(); first += kGroup) {
    add_group(floats.subspan(first, std::min(kGroup, floats.size() - first)));
  }
}

void WidthHistogram::add_group(std::span<const float> floats) noexcept {
  double highest = 0;
  double lowest = 0;
  for (const float each : floats) {
    ++elements_;
    const double value = static_cast<double>(each);
    if (!std::isfinite(value) || value == 0) continue;
    highest = std::max(highest, value);
    lowest = std::min(lowest, value);
    // A power of two belongs to the magnitudes below it, because half a step is rounded to 0.
    const uint32_t bits = std::bit_cast<uint32_t>(std::fabs(each));
    const size_t exponent = (bits - 1) >> 23;
    ++counts_[exponent];
    squares_[exponent] += value * value;
  }
  ++groups_;
  largest_ = std::max(largest_, static_cast<float>(std::max(highest, -lowest)));
  for (int bits = kLeastBits; bits <= kMostBits; ++bits) {
    const double steps = std::ldexp(1.0, bits - 1);
    const unsigned planes = std::max(planes_of(std::rint(highest * steps)), planes_of(std::rint(lowest * steps)));
    ++widths_[static_cast<size_t>(bits - kLeastBits)][planes];
  }
}

double WidthHistogram::squares() const noexcept { return std::accumulate(squares_.begin(), squares_.end(), 0.0); }

WidthCost WidthHistogram::fixed(int bits) const noexcept {
  bits = std::clamp(bits, kLeastBits, kMostBits);
  constexpr double kHalf = 0.5;
  constexpr double kTwelve = 12;
  const double step = std::ldexp(1.0, 1 - bits);
  WidthCost cost;
  double raw = 0;
  for (int e = 0; e < static_cast<int>(kExponents); ++e) {
    const auto at = static_cast<size_t>(e);
    const int doublings = e - kBias - (1 - bits);  // from the step to the least magnitude of this bin
    if (doublings < -1) {
      cost.error += squares_[at];
    } else if (doublings < kExact) {
      cost.error += static_cast<double>(counts_[at]) * step * step / kTwelve;
    }
    if (doublings >= static_cast<int>(kMostPlanes) - 1) raw += static_cast<double>(counts_[at]);
  }
  const auto& widths = widths_[static_cast<size_t>(bits - kLeastBits)];
  cost.bytes = std::ceil(kHalf * static_cast<double>(groups_));
  for (unsigned planes = 1; planes <= kMostPlanes; ++planes) {
    const double bytes = kPlaneBytes * planes + (planes > kTagPlanes ? kEscapeBytes : 0);
    cost.bytes += static_cast<double>(widths[planes]) * bytes;
  }
  // Groups with raw floats have 16 planes for the other floats, unless it takes no more bytes to store all of them raw.
  const auto wide = static_cast<double>(widths[kWide]);
  cost.bytes += kEscapeBytes * wide + kPlaneBytes * std::min(kGroup * wide, kMostPlanes * wide + raw);
  return cost;
}

WidthCost uniform_cost(std::span<const std::vector<WidthCost>> layers, size_t uniform) {
  return cost_of(layers, std::vector<size_t>(layers.size(), uniform));
}

WidthPlan plan_widths(std::span<const std::vector<WidthCost>> layers, size_t uniform) {
  WidthPlan plan = {std::vector<size_t>(layers.size(), uniform), uniform_cost(layers, uniform)};
  // Layers with the least error come first: what thin() removes is small compared with the range of errors so far.
  std::vector<size_t> order(layers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return layers[i][uniform].error; });
  const double allowed = plan.cost.error * (1 + std::ldexp(1.0, -40));  // sums in another order round differently
  std::vector<Frontier> frontiers = {{Partial{}}};
  for (const size_t layer : order) frontiers.push_back(extended(frontiers.back(), layers[layer], allowed));
  if (frontiers.back().empty()) return plan;
  WidthPlan found = plan;
  size_t at = frontiers.back().size() - 1;
  for (size_t i = order.size(); i > 0; --i) {
    const Partial& partial = frontiers[i][at];
    found.choices[order[i - 1]] = partial.choice;
    at = partial.before;
  }
  found.cost = cost_of(layers, found.choices);
  return found.cost.bytes < plan.cost.bytes ? found : plan;
}

}  // namespace gradlane
