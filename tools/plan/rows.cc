// rows.cc - predicted steps with each codec, and the decisions that follow from them (no I/O)
#include "tools/plan/rows.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "compress/codec.h"

namespace gradlane {
namespace {

std::string ways_of(const StepPlan& plan) {
  std::string text;
  for (const BucketChoice& each : plan.choices) {
    const std::string name(each.strategy.name().view());
    if (text.find(name) != text.npos) continue;
    text += (text.empty() ? "" : "+") + name;
  }
  return text;
}

PlanRow row_of(const PlanSetting& setting, const Calibration& calibration, const std::string& name,
               std::span<const CodecCost* const> codecs) {
  PlanRow row;
  row.codec = name;
  row.plan = plan_step(calibration, codecs, setting.buckets, setting.compute(), setting.nodes, setting.strategies);
  row.ways = ways_of(row.plan);
  return row;
}

// Finds PlanRows::single or, with `bounded`, PlanRows::bounded. `rows`: raw and codecs.
const PlanRow* finest_of_fastest(std::span<const PlanRow> rows, bool bounded) {
  double fastest = 1;
  const auto counts = [&](const PlanRow& row) { return !bounded || states_bound(row.codec); };
  for (const PlanRow& row : rows) {
    if (counts(row)) fastest = std::max(fastest, row.speedup);
  }
  for (const PlanRow& row : rows) {
    if (counts(row) && row.speedup >= 1 + kWorthIt && row.speedup * (1 + kAsFast) >= fastest) return &row;
  }
  return &rows.front();
}

PlanRates rates_of(const PlanSetting& setting, const std::string& codec) {
  const CodecCost* const one = &setting.cost(codec);
  return rates_that_pay(setting.calibration, setting.cost("raw"), {&one, 1}, setting.buckets, setting.compute(),
                        setting.nodes, setting.strategies, kWorthIt);
}

void add_rates(const PlanSetting& setting, std::span<const PlanRow> codecs, PlanRows& result) {
  result.named = (result.bounded->codec != "raw" ? result.bounded : result.single)->codec;
  if (result.named != "raw") {
    result.rates = rates_of(setting, result.named);
    return;
  }
  result.named.clear();
  for (const PlanRow& row : codecs) {
    if (!states_bound(row.codec)) continue;
    const PlanRates rates = rates_of(setting, row.codec);
    if (rates.kind == PlanRates::Kind::kNowhere || (!result.named.empty() && rates.rate <= result.rates.rate)) continue;
    result.named = row.codec;
    result.rates = rates;
  }
}

}  // namespace

PlanRow plain_row(const PlanSetting& setting) {
  const Calibration plain = plain_calibration(setting.calibration);
  const CodecCost* const raw = plain.find("raw");
  PlanRow row = row_of(setting, plain, "plain", {&raw, 1});
  for (BucketChoice& each : row.plan.choices) each.codec = nullptr;  // it points into `plain`, which ends here
  return row;
}

PlanRow codec_row(const PlanSetting& setting, const std::string& codec) {
  const CodecCost* const cost = &setting.cost(codec);
  return row_of(setting, setting.calibration, codec, {&cost, 1});
}

PlanRows plan_rows(const PlanSetting& setting) {
  PlanRows result;
  result.compute = setting.compute().seconds();
  const CodecCost& raw = setting.cost("raw");
  std::vector<const CodecCost*> all = {&raw};
  for (const std::string& name : setting.codecs) all.push_back(&setting.cost(name));
  result.rows.push_back(plain_row(setting));
  for (const CodecCost* const each : all) {
    PlanRow row = codec_row(setting, each->name);
    if (std::isfinite(row.plan.time.step)) result.rows.push_back(std::move(row));
  }
  result.rows.push_back(row_of(setting, setting.calibration, "best", all));
  for (PlanRow& row : result.rows) row.speedup = result.rows[PlanRows::kRaw].plan.time.step / row.plan.time.step;

  const std::span<const PlanRow> single(result.rows.begin() + PlanRows::kRaw, result.rows.end() - 1);
  result.single = finest_of_fastest(single, false);
  result.bounded = finest_of_fastest(single, true);
  result.enough = ratio_enough(setting.calibration, setting.buckets, setting.compute(), setting.nodes,
                               setting.strategies, kLinearSlack);
  add_rates(setting, single.subspan(1), result);
  return result;
}

bool states_bound(const std::string& codec) {
  constexpr double kMostOfLargest = 0.01;
  const CodecError error = find_codec(codec).error();
  return error.bounded && error.of_largest < kMostOfLargest;
}

}  // namespace gradlane
