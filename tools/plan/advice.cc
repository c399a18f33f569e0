// advice.cc - the decision of a plan in words, and what it is based on (no I/O)
#include "tools/plan/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compress/codec.h"

namespace gradlane {
namespace {

constexpr double kLeastElements = 1024;  // sums of fewer elements are never compressed
constexpr const char* kFixed = "fixed:";

using Clauses = std::vector<std::string>;

std::string usual_text(const PlanSetting& setting) {
  if (!setting.rings.empty()) {
    return "by figures of another host, with " + cores_text(setting.known_cores);
  }
  const bool card = setting.calibration.port == plan_port_name(PlanPort::kCard);
  return fmt::format("by usual figures, gradients of N(0, 0.01){}", card ? "; estimated: no card was measured" : "");
}

std::string times_text(double speedup) {
  return speedup < 9.995 ? fmt::format("{:.2f}x", speedup) : fmt::format("{:.0f}x", speedup);
}

std::string gbps_text(double gbps) { return fmt::format("{:.3g} Gb/s", gbps); }

// Returns "ring and direct" for "ring+direct".
std::string ways_text(const std::string& ways) {
  std::string text = ways;
  for (size_t at = text.find('+'); at != text.npos; at = text.find('+')) text.replace(at, 1, " and ");
  return text;
}

// Returns a text about the rate up to which compressing pays.
std::string limit_text(const PlanRows& rows) {
  switch (rows.rates.kind) {
    case PlanRates::Kind::kBelow:
      return fmt::format("from {} on, {} gains less than 3 %", gbps_text(rows.rates.rate * 8e-9), rows.named);
    case PlanRates::Kind::kAlways:
      return fmt::format("{} also pays on faster links", rows.named);
    case PlanRates::Kind::kNowhere:
      break;
  }
  return "";  // cannot happen: it pays at this rate
}

// Returns a text about rates at which compressing would pay, because it does not pay here.
std::string elsewhere_text(const PlanRows& rows) {
  switch (rows.rates.kind) {
    case PlanRates::Kind::kNowhere:
      return "no codec with an error bound pays at any other rate";
    case PlanRates::Kind::kBelow:
      return fmt::format("below {}, {} is faster by 3 % or more", gbps_text(rows.rates.rate * 8e-9), rows.named);
    case PlanRates::Kind::kAlways:
      break;
  }
  return "";
}

// Returns a note on fixed:B, whose bound does not depend on the size of gradients. The bound of fixed:adaptive follows
// that size.
std::string fixed_text(const PlanRow& row) {
  if (!row.codec.starts_with(kFixed)) return "";
  const bool follows = follows_gradients(row.codec);
  if (follows && row.measured) return "";
  const std::string codec = follows ? kFollowedCodec : row.codec;
  const std::string bits = codec.substr(std::string_view(kFixed).size());
  if (follows) {
    return fmt::format(
        "fixed:adaptive, of PyTorch's hook, is predicted with the figures of {}, which rounds gradients below "
        "2^-{} to 0",
        codec, bits);
  }
  return fmt::format(
      "{} rounds gradients below 2^-{} to 0: fixed:adaptive, the default of PyTorch's hook, follows their size", codec,
      bits);
}

// Returns advice to try before compressing, or an empty text. There is advice if `ideal` is as fast as the chosen
// codec, and raw is slow because of packets, a core or memory.
std::string raw_text(const PlanRows& rows, const PlanRow& chosen) {
  if (rows.rows.front().plan.time.step >= chosen.plan.time.step * (1 + kWorthIt)) return "";
  switch (rows.raw->plan.sum.limit) {
    case PlanLimit::kPackets:
      return "first try an mtu of 9000, or more lanes, without compression, because packets limit raw";
    case PlanLimit::kCodec:
    case PlanLimit::kMemory:
      return "first try more lanes without compression, because a core limits raw";
    case PlanLimit::kLatency:
    case PlanLimit::kLink:
      break;
  }
  return "";
}

std::string both_text(const std::string& one, const std::string& other) {
  return other.empty() ? one : one + " and " + other;
}

// Returns the name of a row in a sentence.
std::string row_name(const PlanRow& row) {
  if (row.kind == RowKind::kIdeal) return "an ideal exchange without compression";
  if (row.kind == RowKind::kRival) {
    const std::string name = row.library == "nccl" ? "NCCL" : row.library == "gloo" ? "Gloo" : row.library;
    return row.exact ? name : "bf16 of PyTorch with " + name;
  }
  return row.codec;
}

// Returns " by ring: 2.3x against Gloo (what to set)".
std::string how_text(const PlanSetting& setting, const PlanRows& rows, const PlanRow& row) {
  const std::string against = row_name(*rows.baseline);
  if (row.kind == RowKind::kRival) {
    return fmt::format(
        ": steps are {} as fast as with {} (model.register_comm_hook(None, default_hooks.bf16_compress_hook))",
        times_text(row.speedup), against);
  }
  const bool follows = follows_gradients(row.codec);
  const auto [codec, strategies] =
      configuration_of(follows ? kFollowedCodec : row.codec, row.ways, setting.calibration.strategies);
  std::string what = both_text(codec, strategies) + " in the daemons' configuration";
  if (follows) {
    const std::string way = row.ways.find('+') == row.ways.npos ? row.ways : "auto";
    what = fmt::format("gradlane.torch.State(\"fixed:adaptive\", strategy=\"{}\")", way);
    if (!strategies.empty()) what = both_text(what, strategies) + " in the daemons' configuration";
  }
  return fmt::format(" by {}: steps are {} as fast as with {} ({})", ways_text(row.ways), times_text(row.speedup),
                     against, what);
}

// Returns "4 % slower than Gloo", "2 % faster than Gloo".
std::string margin_text(const PlanRow& row, const PlanRows& rows) {
  const bool faster = row.speedup >= 1;
  const double percent = 100 * (faster ? row.speedup - 1 : 1 / row.speedup - 1);
  return fmt::format("{:.0f} % {} than {}", percent, faster ? "faster" : "slower", row_name(*rows.baseline));
}

// Returns a text about what the codec did to trainings, if that makes a difference.
std::string effect_text(const PlanSetting& setting, const PlanRow& row) {
  constexpr double kSlower = 1.05;
  if (row.exact || !row.effect) return "";
  const CodecEffect& effect = *row.effect;
  if (effect.reached < effect.seeds) {
    return fmt::format("; but a small {} reached fp32's accuracy with it in {} of {} trainings", setting.kind,
                       effect.reached, effect.seeds);
  }
  if (effect.epochs < kSlower) return "";
  return fmt::format("; but a small {} needed {:.2f} times as many epochs with it, which leaves {}", setting.kind,
                     effect.epochs, times_text(row.speedup / effect.epochs));
}

// Returns a text if the row is so close to the baseline that the prediction may be wrong about which one is faster.
std::string doubt_text(const PlanSetting& setting, const PlanRows& rows, const PlanRow& row) {
  const auto errors = errors_of(setting, rows);
  if (!errors || std::max(row.speedup, 1 / row.speedup) - 1 >= errors->median) return "";
  return fmt::format("; that is within the error of this prediction, {:.0f} %", 100 * errors->median);
}

// Returns why nothing is faster than the baseline.
std::string nothing_text(const PlanSetting& setting, const PlanRows& rows) {
  std::string text = "do not compress: ";
  if (rows.baseline->plan.time.step <= rows.without * (1 + kLinearSlack)) {
    const bool ideal = rows.baseline->kind == RowKind::kIdeal;
    text += std::string(ideal ? "an ideal" : "the") + " exchange is hidden behind the backward pass";
    if (rows.fastest == nullptr) return text;
    text += "; ";
  }
  if (rows.fastest == nullptr) return text + "no codec here is faster";
  text += fmt::format("the fastest codec, {}, is {}", rows.fastest->codec, margin_text(*rows.fastest, rows));
  if (rows.fastest->speedup > 1 && rows.fastest->speedup < 1 + kWorthIt)
    text += fmt::format(", which is less than the {:.0f} % that count", kWorthIt * 100);
  if (rows.fastest->speedup > 1) text += effect_text(setting, *rows.fastest);
  return text + doubt_text(setting, rows, *rows.fastest);
}

// Returns the decision if a row that is none of gradlane's codecs is the best.
Clauses other_decision(const PlanSetting& setting, const PlanRows& rows, const PlanRow& row) {
  std::string text;
  if (row.exact) {
    text = fmt::format("do not compress, but use gradlane{}", how_text(setting, rows, row));
  } else {
    text = fmt::format("compress with {}{}", row_name(row), how_text(setting, rows, row));
  }
  Clauses clauses = {text + effect_text(setting, row) + doubt_text(setting, rows, row)};
  if (rows.fastest == nullptr) return clauses;
  clauses.push_back(fmt::format("the fastest codec of gradlane, {},{} is {}", rows.fastest->codec,
                                states_bound(rows.fastest->codec) ? "" : " without an error bound,",
                                margin_text(*rows.fastest, rows)));
  return clauses;
}

Clauses decision(const PlanSetting& setting, const PlanRows& rows) {
  const PlanRow& least = *rows.bounded;
  const PlanRow& most = *rows.single;
  const auto never = [](const PlanBucket& each) { return each.elements < kLeastElements; };
  if (std::ranges::all_of(setting.buckets, never)) {
    return {"do not compress: no bucket has 1024 elements, and sums of fewer are never compressed"};
  }
  if (&most == rows.baseline) return {nothing_text(setting, rows), elsewhere_text(rows)};
  if (&least == rows.baseline) {
    return {
        fmt::format("compress only with {}, which has no error bound,{}", most.codec, how_text(setting, rows, most)) +
        effect_text(setting, most) + doubt_text(setting, rows, most)};
  }
  const bool plain = least.exact && (least.kind != RowKind::kCodec || least.codec == kDefaultCodec);
  if (plain || least.kind == RowKind::kRival) return other_decision(setting, rows, least);
  Clauses clauses = {fmt::format("compress with {}{}", least.codec, how_text(setting, rows, least)) +
                     effect_text(setting, least) + doubt_text(setting, rows, least)};
  if (most.speedup > least.speedup * (1 + kWorthIt)) {
    clauses.push_back(fmt::format("{}, without an error bound: {}", most.codec, times_text(most.speedup)) +
                      effect_text(setting, most));
  }
  clauses.insert(clauses.end(), {fixed_text(least), raw_text(rows, least), limit_text(rows)});
  return clauses;
}

// Returns a text about strategies that the ring does not allow, if the step would be shorter with them by more than
// kWorthIt.
std::string wider_text(const PlanSetting& setting, const PlanRows& rows) {
  if (setting.strategies_not_allowed.empty() || rows.raw->measured) return "";
  PlanSetting wide = setting;
  wide.strategies.insert(wide.strategies.end(), setting.strategies_not_allowed.begin(),
                         setting.strategies_not_allowed.end());
  wide.strategies_not_allowed.clear();
  const PlanRows more = plan_rows(wide);
  const double here = std::min(rows.bounded->plan.time.step, rows.baseline->plan.time.step);
  const double there = more.bounded->plan.time.step;
  if (there * (1 + kWorthIt) >= here) return "";
  return fmt::format("with {} allowed on all nodes, {} by {} reaches {} ({})",
                     setting.strategies_not_allowed.front().name().view(), more.bounded->codec,
                     ways_text(more.bounded->ways), times_text(rows.baseline->plan.time.step / there),
                     configuration_text(more.bounded->codec, more.bounded->ways, {}));
}

// Returns the basis of the figures if it is not a calibration of this ring.
std::string basis_text(const PlanSetting& setting) {
  if (!setting.calibrated) return "predicted " + usual_text(setting);
  return setting.calibration.links.empty() ? "packets and latency are predicted by usual figures" : "";
}

// Returns what to set if the calibration's own checks found large errors.
std::string misfit_clause(const PlanSetting& setting, const PlanRows& rows) {
  // The checks are of predictions from parts, which measured all-reduces replace.
  const std::string misfit = rows.raw->measured ? "" : misfit_text(setting.calibration.checks);
  if (misfit.empty()) return "";
  return "but " + misfit +
         ", so set codec: auto:2^-10 in the daemons' configuration, which compares both during the training";
}

}  // namespace

std::string cores_text(double cores) { return fmt::format("{:g} core{} per node", cores, cores == 1 ? "" : "s"); }

PlanConfiguration configuration_of(const std::string& codec, const std::string& ways,
                                   const std::vector<std::string>& allowed) {
  std::string name = codec;
  if (codec.starts_with(kFixed)) name = "auto:2^-" + codec.substr(std::string_view(kFixed).size());
  if (codec == "bf16") name = "auto:rel=8";
  if (codec == "int8") name = "auto:rel=7";
  const bool chosen = name != codec;  // an automatic codec, which chooses the strategy, too
  std::vector<std::string> needed;
  for (size_t begin = 0; begin <= ways.size();) {
    const size_t end = std::min(ways.find('+', begin), ways.size());
    needed.push_back(ways.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool several = needed.size() > 1;
  // Operations for which nothing is chosen use the first strategy, so the ring comes first.
  if ((chosen || several) && std::ranges::find(needed, "ring") == needed.end()) needed.insert(needed.begin(), "ring");
  std::stable_partition(needed.begin(), needed.end(), [](const std::string& each) { return each == "ring"; });
  PlanConfiguration text{.codec = "codec: " + name, .strategies = ""};
  if (!chosen && several) text.codec += ", strategy: auto";
  const std::vector<std::string> there = allowed.empty() ? std::vector<std::string>{"ring"} : allowed;
  const auto has = [&](const std::string& each) { return std::ranges::find(there, each) != there.end(); };
  const bool enough = chosen || several ? std::ranges::all_of(needed, has) : there.front() == needed.front();
  if (!enough) text.strategies = fmt::format("strategies: [{}]", fmt::join(needed, ", "));
  return text;
}

std::string configuration_text(const std::string& codec, const std::string& ways,
                               const std::vector<std::string>& allowed) {
  const auto [own, strategies] = configuration_of(codec, ways, allowed);
  return both_text(own, strategies);
}

std::string origin_text(const PlanSetting& setting) {
  return setting.calibrated ? "" : " (" + usual_text(setting) + ")";
}

std::string assumed_text(const PlanSetting& setting) {
  std::vector<std::string> links;
  std::vector<const char*> options;
  if (setting.nodes_assumed) {
    links.push_back(fmt::format("{} nodes", setting.nodes));
    options.push_back("--nodes");
  }
  if (setting.gbps_assumed) {
    links.push_back(fmt::format("{:g} Gb/s", setting.gbps));
    options.push_back("--gbps");
  }
  if (links.empty()) return "";
  return fmt::format("{} assumed: {}", fmt::join(links, " and "), fmt::join(options, ", "));
}

std::optional<StepErrors> errors_of(const PlanSetting& setting, const PlanRows& rows) {
  // Trainings were measured on rings like the measured ones, with known cores.
  constexpr double kSameRate = 1.5;
  const double bandwidth = setting.calibration.link.bandwidth;
  const MeasuredRing* const ring = nearest_ring(setting.rings, setting.nodes, bandwidth);
  if (!rows.raw->measured || rows.raw->moved || setting.calibration.cores <= 0 || ring->nodes != setting.nodes)
    return std::nullopt;
  const double rates = ring->link.bandwidth / bandwidth;
  if (std::max(rates, 1 / rates) > kSameRate) return std::nullopt;
  const StepErrors* const errors = find_errors(step_errors(), setting.calibrated, setting.calibration.cores);
  return errors == nullptr ? std::nullopt : std::optional(*errors);
}

std::string errors_text(const PlanSetting& setting, const PlanRows& rows) {
  const auto errors = errors_of(setting, rows);
  if (!errors) return "How far such predictions are off was not measured.";
  return fmt::format(
      "Predictions {} were off by {:.0f} % in the median, and by more than {:.0f} % in one of ten: {} steps of "
      "trainings, "
      "{}.",
      setting.calibrated ? "with a calibration" : "without a calibration, on the host of the figures",
      100 * errors->median, 100 * errors->most, errors->steps, cores_text(errors->cores));
}

std::string compute_note(const PlanSetting& setting) {
  if (setting.compute_from != kAsV100) return "";
  return "computing as on a V100: profile your model with gradlane.torch.profile";
}

std::vector<std::string> advice_clauses(const PlanSetting& setting, const PlanRows& rows) {
  if (setting.nodes < 2) return {"one node: there is nothing to send, and nothing to compress"};
  Clauses clauses = decision(setting, rows);
  clauses.insert(clauses.end(),
                 {wider_text(setting, rows), basis_text(setting), assumed_text(setting), misfit_clause(setting, rows)});
  std::erase(clauses, "");
  return clauses;
}

std::string advice(const PlanSetting& setting, const PlanRows& rows) {
  return fmt::format("{}", fmt::join(advice_clauses(setting, rows), "; "));
}

}  // namespace gradlane
