// rows.cc - predicted steps with each codec, and the decisions that follow from them (no I/O)
#include "tools/plan/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "collectives/cost/measured.h"
#include "compress/codec.h"

namespace gradlane {
namespace {

constexpr double kFloatBytes = 4;

std::string ways_of(const StepPlan& plan) {
  std::string text;
  for (const BucketChoice& each : plan.choices) {
    const std::string name(each.strategy.name().view());
    if (text.find(name) != text.npos) continue;
    text += (text.empty() ? "" : "+") + name;
  }
  return text;
}

PlanRow row_of(const PlanSetting& setting, RowKind kind, const std::string& name, const BucketExchange& exchange) {
  const Calibration& calibration = setting.calibration;
  // An ideal exchange does not slow down backward.
  const StepHost host = {calibration.cores, kind == RowKind::kIdeal ? 1 : calibration.lambda};
  PlanRow row;
  row.kind = kind;
  row.codec = name;
  row.plan = plan_step(host, exchange, setting.buckets, setting.compute());
  row.limit = plan_limit_name(row.plan.sum.limit);
  return row;
}

BucketExchange model_of(const Calibration& calibration, std::vector<const CodecCost*> codecs, unsigned nodes,
                        const std::vector<StrategyId>& strategies) {
  return [&calibration, &strategies, codecs = std::move(codecs), nodes](double elements) {
    return fastest_codec(calibration, codecs, elements, nodes, strategies);
  };
}

// A measured exchange on a ring, and the ring of the setting.
struct Move {
  const MeasuredRing& ring;
  const MeasuredExchange& measured;
  bool same = false;  // it was measured on such a ring
};

std::optional<Move> find_move(const PlanSetting& setting, const std::string& library, const std::string& codec) {
  const LinkCost& link = setting.calibration.link;
  const MeasuredRing* const ring = nearest_ring(setting.rings, setting.nodes, link.bandwidth);
  const MeasuredExchange* const measured = ring == nullptr ? nullptr : find_exchange(ring->exchanges, library, codec);
  // One size says nothing of larger buckets.
  if (measured == nullptr || measured->points.size() < 2) return std::nullopt;
  const bool same =
      ring->nodes == setting.nodes && ring->link.bandwidth == link.bandwidth && ring->link.latency == link.latency;
  return Move{*ring, *measured, same};
}

// Returns the strategies of an ideal exchange, whatever the user's are.
const std::vector<StrategyId>& ideal_strategies() {
  static const std::vector<StrategyId> strategies = find_strategies("ring,direct");
  return strategies;
}

// Returns the exchange of a row that cannot be.
BucketChoice no_exchange() {
  BucketChoice choice;
  choice.time.seconds = std::numeric_limits<double>::infinity();
  return choice;
}

// Returns the figures of the ring on which an exchange was measured.
Calibration calibration_then(const PlanSetting& setting, const MeasuredRing& ring) {
  Calibration then = setting.calibration;
  then.link = ring.link;
  then.packets = setting.measured_packets;
  then.lanes = setting.measured_lanes;
  return then;
}

// Puts a measured cost into a prediction. It takes at least as long as the cores need for its work.
void apply(const PlanSetting& setting, const ExchangeCost& cost, BucketChoice& choice) {
  const double cores = setting.calibration.cores;
  choice.busy = cost.busy;
  choice.time.seconds = std::max(cost.seconds, cores > 0 ? cost.busy / cores : 0);
}

// Returns the row of another library, whose step is infinite if nothing was measured of it on the nearest ring.
PlanRow rival_row(const PlanSetting& setting, const std::string& library, const std::string& codec) {
  const auto move = find_move(setting, library, codec);
  const bool exact = codec == "fp32";
  const Calibration now = ideal_calibration(setting.calibration);
  const Calibration then = move ? ideal_calibration(calibration_then(setting, move->ring)) : now;
  const CodecCost* const cost = now.find(exact ? "raw" : codec);
  const BucketExchange exchange = [&](double elements) {
    if (!move) return no_exchange();
    BucketChoice choice = fastest_codec(now, {&cost, 1}, elements, setting.nodes, ideal_strategies());
    const BucketChoice before = fastest_codec(then, {&cost, 1}, elements, move->ring.nodes, ideal_strategies());
    apply(setting, move_rival(exchange_at(move->measured, elements * kFloatBytes), before, choice), choice);
    choice.codec = nullptr;  // it points into `now`, which ends here
    return choice;
  };
  PlanRow row = row_of(setting, RowKind::kRival, exact ? library : library + " " + codec, exchange);
  row.library = library;
  row.exact = exact;
  row.measured = true;
  row.limit.clear();
  return row;
}

PlanRow measured_row(const PlanSetting& setting, const Move& move, const std::string& codec) {
  const Calibration& now = setting.calibration;
  const Calibration then = calibration_then(setting, move.ring);
  const CodecCost* const own = setting.find_cost(codec);
  // A codec without figures is moved as what it consists of first: topk:1%+fixed:10 as topk:1%.
  const CodecCost* const cost = own != nullptr ? own : setting.find_cost(codec.substr(0, codec.find('+')));
  // All-reduces were measured by the first strategy that the ring allows, or by owners where a ring cannot carry sums.
  const std::vector<std::string>& allowed = now.strategies;
  const std::string way = cost != nullptr && cost->owners ? "direct" : allowed.empty() ? "ring" : allowed.front();
  const std::vector<StrategyId> measured_ways = find_strategies(way);
  const std::vector<StrategyId>& ways = setting.strategies_given ? setting.strategies : measured_ways;
  const BucketExchange exchange = [&](double elements) {
    const ExchangeCost measured = exchange_at(move.measured, elements * kFloatBytes);
    BucketChoice choice;
    if (cost != nullptr) {
      choice = fastest_codec(now, {&cost, 1}, elements, setting.nodes, ways);
      const BucketChoice before = fastest_codec(then, {&cost, 1}, elements, move.ring.nodes, measured_ways);
      ExchangeCost moved = move_own(measured, before, choice);
      // On other links it takes at least as long as these need for the bytes.
      if (!move.same || choice.strategy != before.strategy) moved.seconds = std::max(moved.seconds, choice.time.link);
      if (own == nullptr) choice.time = {};
      apply(setting, moved, choice);
    } else if (move.same) {
      choice.strategy = measured_ways.front();
      apply(setting, measured, choice);
    } else {
      return no_exchange();
    }
    return choice;
  };
  PlanRow row = row_of(setting, RowKind::kCodec, codec, exchange);
  row.measured = true;
  row.ways = cost == nullptr ? way : ways_of(row.plan);
  row.moved = row.ways != way;
  if (own == nullptr) row.limit.clear();
  return row;
}

// Returns a row in which each bucket goes by the fastest of the rows.
PlanRow best_row(const PlanSetting& setting, std::span<const PlanRow> rows) {
  size_t bucket = 0;
  const BucketExchange exchange = [&](double) {
    const size_t i = bucket++;
    const auto seconds = [i](const PlanRow& row) { return row.plan.choices[i].time.seconds; };
    return std::ranges::min_element(rows, {}, seconds)->plan.choices[i];
  };
  PlanRow row = row_of(setting, RowKind::kBest, "best", exchange);
  row.measured = std::ranges::all_of(rows, &PlanRow::measured);
  row.moved = std::ranges::any_of(rows, &PlanRow::moved);
  row.ways = ways_of(row.plan);
  return row;
}

// Returns the rows of rivals that were measured with this codec on this host, or on the hosts of the usual figures.
std::vector<PlanRow> rival_rows(const PlanSetting& setting, const std::string& codec) {
  std::vector<PlanRow> rows;
  const MeasuredRing* const ring = nearest_ring(setting.rings, setting.nodes, setting.calibration.link.bandwidth);
  if (ring == nullptr) return rows;
  for (const MeasuredExchange& each : ring->exchanges) {
    if (each.library != kOwnLibrary && each.points.size() > 1 && each.codec == codec)
      rows.push_back(rival_row(setting, each.library, codec));
  }
  return rows;
}

// Finds PlanRows::single or, with `bounded`, PlanRows::bounded.
const PlanRow* finest_of_fastest(const PlanRows& all, bool bounded) {
  double fastest = 1;
  // Predictions from parts leave out what PyTorch costs, so they do not compete with measured codecs.
  const bool measured = std::ranges::any_of(
      all.rows, [](const PlanRow& row) { return row.kind != RowKind::kBest && !row.exact && row.measured; });
  const auto counts = [&](const PlanRow& row) {
    if (row.later_to_accuracy()) return false;
    if (row.kind == RowKind::kRival) return !row.exact;  // the fastest of those that are exact is the baseline
    return row.kind == RowKind::kCodec && (row.measured || !measured) && (!bounded || states_bound(row.codec));
  };
  for (const PlanRow& row : all.rows) {
    if (counts(row)) fastest = std::max(fastest, row.speedup);
  }
  for (const PlanRow& row : all.rows) {
    if (counts(row) && row.speedup >= 1 + kWorthIt && row.speedup * (1 + kAsFast) >= fastest) return &row;
  }
  return all.baseline;
}

// Returns a row of plan_rows() at another rate.
PlanRow same_row(const PlanSetting& setting, const PlanRow& row) {
  if (row.kind == RowKind::kRival) return rival_row(setting, row.library, row.exact ? "fp32" : "bf16");
  return codec_row(setting, row.codec);
}

PlanRates rates_of(const PlanSetting& setting, const PlanRow& row) {
  const auto at = [&setting](const auto& row_at) {
    return [&setting, row_at](double rate) { return row_at(with_gbps(setting, rate * 8e-9)).plan.time.step; };
  };
  return rates_that_pay(at(baseline_row), at([&row](const PlanSetting& other) { return same_row(other, row); }),
                        kWorthIt);
}

void add_rates(const PlanSetting& setting, PlanRows& result) {
  const PlanRow* const chosen = result.bounded != result.baseline ? result.bounded : result.single;
  if (chosen != result.baseline) {
    result.named = chosen->codec;
    result.rates = rates_of(setting, *chosen);
    return;
  }
  for (const PlanRow& row : result.rows) {
    if (row.kind != RowKind::kCodec || &row == result.raw || !states_bound(row.codec)) continue;
    const PlanRates rates = rates_of(setting, row);
    if (rates.kind == PlanRates::Kind::kNowhere || (!result.named.empty() && rates.rate <= result.rates.rate)) continue;
    result.named = row.codec;
    result.rates = rates;
  }
}

// Returns the step with the baseline if its bytes were smaller by `ratio` and that took no time.
double smaller_step(PlanSetting setting, double ratio) {
  for (PlanBucket& each : setting.buckets) each.elements /= ratio;
  return baseline_row(setting).plan.time.step;
}

}  // namespace

std::optional<double> PlanRow::to_accuracy() const {
  if (exact) return speedup;
  if (!effect || effect->reached < effect->seeds || effect->epochs <= 0) return std::nullopt;
  return speedup / effect->epochs;
}

bool PlanRow::later_to_accuracy() const {
  if (exact || !effect) return false;
  if (2 * effect->reached < effect->seeds) return true;
  return effect->epochs > 0 && speedup / effect->epochs < 1 + kWorthIt;
}

PlanSetting with_gbps(PlanSetting setting, double gbps) {
  setting.gbps = gbps;
  setting.calibration.link.bandwidth = gbps * 1e9 / 8;
  return setting;
}

PlanRow ideal_row(const PlanSetting& setting) {
  const Calibration ideal = ideal_calibration(setting.calibration);
  const CodecCost* const raw = ideal.find("raw");
  const BucketExchange model = [&](double elements) {
    BucketChoice choice = fastest_codec(ideal, {&raw, 1}, elements, setting.nodes, ideal_strategies());
    choice.busy = 0;  // an ideal exchange needs no core
    return choice;
  };
  PlanRow row = row_of(setting, RowKind::kIdeal, "ideal", model);
  row.exact = true;
  row.ways = ways_of(row.plan);
  for (BucketChoice& each : row.plan.choices) each.codec = nullptr;  // it points into `ideal`, which ends here
  return row;
}

PlanRow codec_row(const PlanSetting& setting, const std::string& codec) {
  const CodecCost* const cost = setting.find_cost(codec);
  PlanRow row;
  if (const auto move = find_move(setting, kOwnLibrary, codec)) {
    row = measured_row(setting, *move, codec);
  } else {
    const BucketExchange model = cost == nullptr
                                     ? [](double) { return no_exchange(); }
                                     : model_of(setting.calibration, {cost}, setting.nodes, setting.strategies);
    row = row_of(setting, RowKind::kCodec, codec, model);
    row.ways = ways_of(row.plan);
  }
  row.exact = cost != nullptr && cost->exact;
  return row;
}

std::vector<PlanRow> rival_bf16_rows(const PlanSetting& setting) { return rival_rows(setting, "bf16"); }

PlanRow baseline_row(const PlanSetting& setting) {
  if (!setting.calibrated) return ideal_row(setting);
  const std::vector<PlanRow> rows = rival_rows(setting, "fp32");
  const auto fastest = std::ranges::min_element(rows, {}, [](const PlanRow& row) { return row.plan.time.step; });
  return fastest == rows.end() ? ideal_row(setting) : *fastest;
}

PlanRows plan_rows(const PlanSetting& setting) {
  PlanRows result;
  result.compute = setting.compute().seconds();
  const StepHost host = {setting.calibration.cores, 1};
  result.without = result.compute + step_overhead(setting.buckets, setting.compute(), host);
  std::vector<PlanRow>& rows = result.rows;
  const auto add = [&rows](const std::vector<PlanRow>& more) { rows.insert(rows.end(), more.begin(), more.end()); };
  rows.push_back(ideal_row(setting));
  add(rival_rows(setting, "fp32"));
  std::vector<PlanRow> own = {codec_row(setting, std::string(kDefaultCodec))};
  for (const std::string& name : setting.codecs) {
    PlanRow row = codec_row(setting, name);
    if (std::isfinite(row.plan.time.step)) own.push_back(std::move(row));
  }
  const size_t raw = rows.size();
  rows.push_back(own.front());  // raw is exact, so it comes before the rivals' bf16
  add(rival_bf16_rows(setting));
  const size_t codecs = rows.size();
  rows.insert(rows.end(), own.begin() + 1, own.end());
  rows.push_back(best_row(setting, own));

  result.raw = &rows[raw];
  const std::string baseline = baseline_row(setting).codec;
  result.baseline = &*std::ranges::find(rows, baseline, &PlanRow::codec);
  for (PlanRow& row : rows) {
    row.speedup = result.baseline->plan.time.step / row.plan.time.step;
    // The bf16 hook computes the same over each library.
    const std::string name = row.kind == RowKind::kRival && !row.exact ? "gloo bf16" : row.codec;
    if (const CodecEffect* const effect = find_effect(setting.effects, setting.kind, name)) row.effect = *effect;
  }
  result.single = finest_of_fastest(result, false);
  result.bounded = finest_of_fastest(result, true);
  const auto step = [](const PlanRow& row) { return row.plan.time.step; };
  if (codecs + 1 < rows.size()) {
    result.fastest =
        &*std::ranges::min_element(rows.begin() + static_cast<std::ptrdiff_t>(codecs), rows.end() - 1, {}, step);
  }
  result.enough =
      ratio_enough([&](double ratio) { return smaller_step(setting, ratio); }, result.without * (1 + kLinearSlack));
  add_rates(setting, result);
  return result;
}

bool states_bound(const std::string& codec) {
  constexpr double kMostOfLargest = 0.01;
  if (follows_gradients(codec)) return true;
  const CodecError error = find_codec(codec).error();
  return error.bounded && error.of_largest < kMostOfLargest;
}

}  // namespace gradlane
