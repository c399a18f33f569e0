// rows.h - predicted steps with each codec, and the decisions that follow from them (no I/O)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/options.h"

namespace gradlane {

// A training step with one codec for all buckets. "plain" is an ideal exchange without compression that no library
// beats (plain_calibration()). "best" uses the fastest codec for each bucket.
struct PlanRow {
  std::string codec;
  std::string ways;  // strategies of its buckets: "ring", "ring+direct"
  StepPlan plan;
  double speedup = 1;  // time of raw's step / time of this one
};

struct PlanRows {
  static constexpr size_t kRaw = 1;  // index of raw, after plain

  std::vector<PlanRow> rows;  // plain, raw, each codec, best
  // `single` is the row of the finest codec that is as fast as the fastest (kAsFast) and saves at least kWorthIt. If
  // there is none, it is raw's row. `bounded` is the row that this rule finds among codecs with an error bound
  // (states_bound()).
  const PlanRow* single = nullptr;
  const PlanRow* bounded = nullptr;
  double compute = 0;            // s of a step without an exchange
  std::optional<double> enough;  // compression ratio that is enough for linear scaling: ratio_enough()
  // `rates` are the rates of links at which compressing with `named` pays. `named` is the codec that advice()
  // (advice.h) names. If no codec pays here, it is the codec with a bound that pays up to the highest rate. It is empty
  // if no such codec pays at any rate.
  std::string named;
  PlanRates rates;
};
// Returns the rows. A codec that none of the strategies can carry has no row.
[[nodiscard]] PlanRows plan_rows(const PlanSetting& setting);

// Returns whether the codec has a useful bound of its error. The bound must be less than a hundredth of the largest
// value of a chunk, or a share of each value. It may also be a number that the user chose. The bounds of onebit (the
// largest value) and of qsgd:4 (a fifteenth of it) are too large to count.
[[nodiscard]] bool states_bound(const std::string& codec);

[[nodiscard]] PlanRow plain_row(const PlanSetting& setting);
// Returns the row of a codec of the calibration. Its step is infinite if no strategy can carry it.
[[nodiscard]] PlanRow codec_row(const PlanSetting& setting, const std::string& codec);

// Least gain that counts, as a share of a step. Smaller ones are not reported, because the model errs by more.
inline constexpr double kWorthIt = 0.03;
inline constexpr double kAsFast = kWorthIt;
// "Linear scaling": a step takes at most this share longer than computing alone.
inline constexpr double kLinearSlack = 0.1;

}  // namespace gradlane
