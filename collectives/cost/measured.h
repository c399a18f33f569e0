// measured.h - all-reduces of sizes that were not measured, and on other rings, from those that were measured (pure)
#pragma once

#include "collectives/cost/calibration.h"
#include "collectives/cost/step.h"

namespace gradlane {

// A ring on which all-reduces were measured.
struct MeasuredRing {
  unsigned nodes = 0;
  LinkCost link;
  std::vector<MeasuredExchange> exchanges;
};
// Returns the ring whose links are nearest to that bandwidth and, of these, whose nodes are nearest; null if there is
// none.
[[nodiscard]] const MeasuredRing* nearest_ring(std::span<const MeasuredRing> rings, unsigned nodes,
                                               double bandwidth) noexcept;

// Returns the cost of an all-reduce of `bytes`. Between two points it lies on the line through them on logarithmic
// scales. Beyond them, that line goes on, but is never steeper than in proportion to the bytes and never falls.
[[nodiscard]] ExchangeCost exchange_at(const MeasuredExchange& measured, double bytes);

// Both return the cost of a measured all-reduce on another ring. `then` and `now` are predictions for the two rings.
//
// gradlane's: predictions are of its own codec, and the measured cost changes in proportion.
[[nodiscard]] ExchangeCost move_own(const ExchangeCost& measured, const BucketChoice& then, const BucketChoice& now);
// A rival's: predictions are of an ideal exchange (ideal_calibration()). The time that the rival takes longer than
// that, and its work, change in proportion to the bytes that a node sends.
[[nodiscard]] ExchangeCost move_rival(const ExchangeCost& measured, const BucketChoice& then, const BucketChoice& now);

}  // namespace gradlane
