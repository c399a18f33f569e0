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
  std::vector<PlanRow> rows;           // raw, each codec, best
  const PlanRow* single = nullptr;     // the fastest of those with one codec
  const PlanRow* bounded = nullptr;    // the fastest of those that state a bound of their error
  double compute = 0;                  // s, of a step with nothing to exchange
  std::optional<double> enough;        // ratio_enough()
  std::optional<double> nothing_from;  // Gb/s from which on `bounded` brings less than 3 %; none: it always does
};
// Of a codec that cannot go by any of the strategies there is no row.
[[nodiscard]] PlanRows plan_rows(const PlanSetting& setting);

// What the figures are of, where nothing was calibrated: " (by usual figures, gradients of N(0, 0.01))"; else empty.
[[nodiscard]] std::string origin_text(const PlanSetting& setting);
// What to do, in one sentence, and by which figures.
[[nodiscard]] std::string advice(const PlanSetting& setting, const PlanRows& rows);

[[nodiscard]] PlanRow plain_row(const PlanSetting& setting);
// Of a codec of the calibration; its step is infinite where it cannot go.
[[nodiscard]] PlanRow codec_row(const PlanSetting& setting, const std::string& codec);

// Below this a gain is not worth mentioning: models err by more.
inline constexpr double kWorthIt = 0.03;
inline constexpr double kAsFast = kWorthIt;
// "Linear scaling": a step takes at most so much more than computing alone.
inline constexpr double kLinearSlack = 0.1;

}  // namespace gradlane
