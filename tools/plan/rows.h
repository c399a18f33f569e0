// rows.h - steps with each codec, and what follows from them (no I/O)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/options.h"

namespace gradlane {

// A training step with one codec for all buckets. "plain": what no library beats without compressing
// (plain_calibration()). "best": with whichever is the fastest for each.
struct PlanRow {
  std::string codec;
  std::string ways;  // strategies of its buckets: "ring", "ring+direct"
  StepPlan plan;
  double speedup = 1;  // raw's step / this one
};

struct PlanRows {
  static constexpr size_t kRaw = 1;  // behind plain

  std::vector<PlanRow> rows;  // plain, raw, each codec, best
  // The finest of those that are as fast as the fastest and bring something; raw, where none does. Of those with one
  // codec, and of those that state a bound of their error (states_bound()).
  const PlanRow* single = nullptr;
  const PlanRow* bounded = nullptr;
  double compute = 0;            // s, of a step with nothing to exchange
  std::optional<double> enough;  // ratio_enough()
  // Where it pays to compress with that codec, which is the one that advice() (advice.h) names; where none brings
  // anything here, the one of those with a bound that does so up to the highest rate. Empty: none of them at any rate.
  std::string named;
  PlanRates rates;
};
// Of a codec that cannot go by any of the strategies there is no row.
[[nodiscard]] PlanRows plan_rows(const PlanSetting& setting);

// Off by less than a hundredth of the largest of its chunk, or by a part of each value, or of a number that was chosen.
// That of onebit, all of the largest, is a bound in name only, and so is that of qsgd:4, a fifteenth.
[[nodiscard]] bool states_bound(const std::string& codec);

[[nodiscard]] PlanRow plain_row(const PlanSetting& setting);
// Of a codec of the calibration; its step is infinite where it cannot go.
[[nodiscard]] PlanRow codec_row(const PlanSetting& setting, const std::string& codec);

// Below this a gain is not worth mentioning: models err by more.
inline constexpr double kWorthIt = 0.03;
inline constexpr double kAsFast = kWorthIt;
// "Linear scaling": a step takes at most so much more than computing alone.
inline constexpr double kLinearSlack = 0.1;

}  // namespace gradlane
