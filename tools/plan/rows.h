// rows.h - predicted steps with each codec, and the decisions that follow from them (no I/O)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/options.h"

namespace gradlane {

// The library that exchanges a row's gradients.
enum class RowKind : uint8_t {
  kIdeal,  // an ideal exchange without compression that no library beats (ideal_calibration())
  kRival,  // another library, as measured
  kCodec,  // a codec of gradlane, or raw
  kBest,   // for each bucket, the fastest of gradlane's rows
};

// A training step with one codec for all buckets.
struct PlanRow {
  RowKind kind = RowKind::kCodec;
  std::string codec;    // "ideal", "gloo", "gloo bf16", "raw", a codec, "best"
  std::string library;  // of rivals
  bool exact = false;   // loses nothing
  bool measured = false;
  bool moved = false;  // measured by another strategy than `ways`, and changed in proportion to predictions
  std::string ways;    // strategies of its buckets: "ring", "ring+direct"; rivals have none
  std::string limit;   // what takes most of the exchange's time; empty: unknown
  StepPlan plan;
  double speedup = 1;  // time of the baseline's step / time of this one
  // what is known of trainings: find_effect(); empty: nothing. Exact rows need as many epochs as fp32.
  std::optional<CodecEffect> effect;

  // Returns the speed-up of a training to the accuracy of fp32; none if it is unknown, or was not reached by all seeds.
  [[nodiscard]] std::optional<double> to_accuracy() const;
  // Returns whether trainings with this codec are known to be no faster than without: less than half of them reached
  // the accuracy of fp32, or they needed more epochs than faster steps make up for.
  [[nodiscard]] bool later_to_accuracy() const;
};

struct PlanRows {
  std::vector<PlanRow> rows;  // ideal, rivals, raw, each codec, best
  // The fastest exchange without compression that this host has: that of a rival, if one was measured here; else ideal.
  const PlanRow* baseline = nullptr;
  const PlanRow* raw = nullptr;
  // `single` is the row of the finest codec that is as fast as the fastest (kAsFast) and saves at least kWorthIt. raw,
  // and a rival's bf16, count as codecs, before gradlane's. Rows with later_to_accuracy() do not count, nor do those
  // predicted from parts if codecs were measured. If there is none, it is the baseline. `bounded` is the row
  // that this rule finds among codecs with an error bound (states_bound()).
  const PlanRow* single = nullptr;
  const PlanRow* bounded = nullptr;
  const PlanRow* fastest = nullptr;  // of gradlane's codecs; null: there is none
  double compute = 0;                // s of a step of one node alone
  double without = 0;                // s of a step whose exchanges take no time: compute and step_overhead()
  std::optional<double> enough;      // ratio that is enough for linear scaling: ratio_enough(), for the baseline
  // `rates` are the rates of links at which `named` is faster than the baseline. `named` is the row that advice()
  // (advice.h) names. If nothing pays here, it is the codec with a bound that pays up to the highest rate. It is empty
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

[[nodiscard]] PlanRow ideal_row(const PlanSetting& setting);
// Returns the row of raw or of a codec. Its step is infinite if no strategy can carry it, or if it was measured on
// another ring and there are no figures with which to predict it for this one.
[[nodiscard]] PlanRow codec_row(const PlanSetting& setting, const std::string& codec);
// Returns the rows of rivals' bf16 that were measured on the nearest ring.
[[nodiscard]] std::vector<PlanRow> rival_bf16_rows(const PlanSetting& setting);
// Returns the row of PlanRows::baseline.
[[nodiscard]] PlanRow baseline_row(const PlanSetting& setting);

// Returns the setting with links of that rate, in Gb/s.
[[nodiscard]] PlanSetting with_gbps(PlanSetting setting, double gbps);

// Least gain that counts, as a share of a step. Smaller ones are not reported, because the model errs by more.
inline constexpr double kWorthIt = 0.03;
inline constexpr double kAsFast = kWorthIt;
// "Linear scaling": a step takes at most this share longer than computing alone.
inline constexpr double kLinearSlack = 0.1;

}  // namespace gradlane
