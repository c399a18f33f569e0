// measured.cc - all-reduces of sizes that were not measured, and on other rings, from those that were measured (pure)
#include "collectives/cost/measured.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gradlane {
namespace {

// Returns the value at `bytes` of the line through two points on logarithmic scales.
double line_at(const ExchangePoint& from, const ExchangePoint& to, double ExchangePoint::*value, double bytes) {
  const double low = from.*value;
  const double high = to.*value;
  if (low <= 0 || high <= 0) return std::max(low, high);
  double slope = std::log(high / low) / std::log(to.bytes / from.bytes);
  if (bytes < from.bytes || bytes > to.bytes) slope = std::clamp(slope, 0.0, 1.0);
  const ExchangePoint& near = bytes > to.bytes ? to : from;
  return near.*value * std::pow(bytes / near.bytes, slope);
}

double factor(double now, double then) { return then > 0 && std::isfinite(then) ? now / then : 1; }

}  // namespace

const MeasuredRing* nearest_ring(std::span<const MeasuredRing> rings, unsigned nodes, double bandwidth) noexcept {
  const auto far = [&](const MeasuredRing& ring) {
    return std::pair(std::abs(std::log(ring.link.bandwidth / bandwidth)),
                     std::abs(std::log(static_cast<double>(ring.nodes) / nodes)));
  };
  const auto nearest = std::ranges::min_element(rings, {}, far);
  return nearest == rings.end() ? nullptr : &*nearest;
}

ExchangeCost exchange_at(const MeasuredExchange& measured, double bytes) {
  const auto& points = measured.points;
  if (points.empty() || bytes <= 0) return {};
  if (points.size() == 1) {
    const double more = std::max(1.0, bytes / points[0].bytes);
    return {points[0].seconds * more, points[0].busy * more};
  }
  size_t last = 1;
  while (last + 1 < points.size() && points[last].bytes < bytes) ++last;
  const auto at = [&](double ExchangePoint::*value) { return line_at(points[last - 1], points[last], value, bytes); };
  return {at(&ExchangePoint::seconds), at(&ExchangePoint::busy)};
}

ExchangeCost move_own(const ExchangeCost& measured, const BucketChoice& then, const BucketChoice& now) {
  return {measured.seconds * factor(now.time.seconds, then.time.seconds), measured.busy * factor(now.busy, then.busy)};
}

ExchangeCost move_rival(const ExchangeCost& measured, const BucketChoice& then, const BucketChoice& now) {
  if (then.time.seconds == now.time.seconds) return measured;
  const double bytes = factor(now.time.sent_bytes, then.time.sent_bytes);
  const double longer = std::max(0.0, measured.seconds - then.time.seconds);
  return {now.time.seconds + longer * bytes, measured.busy * bytes};
}

}  // namespace gradlane
