// options.cc - the options of `gradlane plan`, understood and checked
#include "tools/plan/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/parse.h"
#include "collectives/wire.h"
#include "config/calibration_file.h"
#include "tools/bench/codec_list.h"
#include "tools/calibrate/machine.h"
#include "tools/plan/profile.h"

namespace gradlane {
namespace {

// Codecs from the finest to the coarsest. Among codecs that are equally fast, the first one is chosen.
constexpr const char* kUsualCodecs[] = {"pack", "bf16", "fixed:10", "int8", "qsgd:4", "signsgd", "dgc:1%"};
constexpr PlanPort kPorts[] = {PlanPort::kUdp, PlanPort::kPackets, PlanPort::kCard};
constexpr std::string_view kFollows[] = {kAdaptiveCodec, "fixed:auto"};  // the latter is the name in release 0.1
constexpr double kMostGbps = 1e5;
constexpr double kMostBatch = 1e6;
constexpr double kMostFaster = 1000;

double option_number(const char* option, const std::string& text, double usual, double least, double most) {
  if (text.empty()) return usual;
  if (const auto value = parse_real(text, least, most)) return *value;
  throw SetupError(fmt::format("{} '{}': must be a number from {:g} to {:g}", option, text, least, most));
}

unsigned whole_number(const char* option, const std::string& text, unsigned usual, unsigned least, unsigned most) {
  if (text.empty()) return usual;
  if (const auto value = parse_decimal(text, least, most)) return static_cast<unsigned>(*value);
  throw SetupError(fmt::format("{} '{}': must be a whole number from {} to {}", option, text, least, most));
}

// Returns the number of samples of a node in a step, if the user does not say it.
unsigned usual_batch(const std::string& model) {
  if (model == "gpt2") return 8;
  return model == "bert-base" ? 32 : 64;
}

void read_model(const PlanOptions& options, PlanSetting& setting) {
  constexpr double kMilli = 1e-3;
  constexpr double kBackwardShare = 2.0 / 3;  // of forward and backward, if it was not measured
  if (options.model.empty()) {
    throw SetupError(fmt::format("--model is missing: {}, or a profile FILE", fmt::join(model_names(), ", ")));
  }
  if (const auto known = find_model(options.model)) {
    setting.model = *known;
    const double backward = v100_backward(*known);
    setting.sample = {backward / 2, backward};
    setting.compute_from = kAsV100;
    setting.batch = usual_batch(known->name);
  } else if (std::error_code error; std::filesystem::exists(options.model, error)) {
    const Profile profile = load_profile(options.model);
    setting.model = profile.table;
    setting.batch = profile.table.batch;
    setting.sample = {profile.forward / setting.batch, profile.table.backward / setting.batch};
    setting.compute_from = "as profiled";
    if (profile.table.backward == 0 && options.compute_ms.empty()) {
      throw SetupError(fmt::format("{}: backward_ms: is missing; add it, or use --compute-ms", options.model));
    }
  } else {
    throw SetupError(fmt::format("--model '{}': is neither a file nor a known model, which are {}", options.model,
                                 fmt::join(model_names(), ", ")));
  }
  const unsigned own = setting.batch;
  setting.batch = whole_number("--batch", options.batch, own, 1, static_cast<unsigned>(kMostBatch));
  if (setting.batch != own && setting.compute_from != kAsV100) {
    setting.compute_from = fmt::format("scaled from the profile's batch of {}", own);
  }
  if (!options.compute_ms.empty()) {
    const double seconds = kMilli * option_number("--compute-ms", options.compute_ms, 0, 1e-3, 1e9) / setting.batch;
    const double known = setting.sample.backward;
    const double share = known > 0 ? known / (setting.sample.forward + known) : kBackwardShare;
    setting.sample = {seconds * (1 - share), seconds * share};
    setting.compute_from = "as given";
  }
  setting.buckets = buckets_of(setting.model);
}

// Loads a calibration. Throws SetupError if the file has none, or if it is stale or of another host.
Calibration usable_calibration(const std::string& path) {
  Calibration calibration = load_calibration(path);
  if (const std::string fault = calibration_fault(calibration, this_use()); !fault.empty()) {
    throw SetupError(
        fmt::format("{}: cannot be used here: {}; measure again with gradlane plan --calibrate", path, fault));
  }
  if (calibration.links.empty()) calibration.link = usual_calibration(PlanPort::kUdp).link;
  return calibration;
}

// Reads the first file of the places that can be used here. The user has not asked for one, so the usual figures stay
// if none can be used.
void read_default(const std::vector<std::string>& places, PlanSetting& setting) {
  for (const std::string& path : places) {
    if (std::error_code error; !std::filesystem::exists(path, error)) continue;
    try {
      setting.calibration = usable_calibration(path);
      setting.calibrated = true;
      setting.ignored.clear();
      return;
    } catch (const SetupError& fault) {
      if (setting.ignored.empty()) setting.ignored = fault.what();
    }
  }
}

void read_effects(const PlanOptions& options, PlanSetting& setting) {
  setting.kind = options.kind.empty() ? kind_of_model(setting.model.name) : options.kind;
  if (!options.kind.empty() && std::ranges::find(kModelKinds, options.kind) == std::end(kModelKinds)) {
    throw SetupError(fmt::format("--kind '{}': must be {}", options.kind, fmt::join(kModelKinds, ", ")));
  }
  for (const CodecEffect& each : codec_effects()) {
    if (each.kind == setting.kind) setting.effects.push_back(each);
  }
}

void read_costs(const PlanOptions& options, PlanSetting& setting) {
  setting.calibration = usual_calibration(plan_port_of(options.port));
  if (options.calibration.empty() && options.port.empty()) {
    read_default(options.places, setting);
  } else if (!options.calibration.empty() && options.calibration != "none") {
    if (!options.port.empty())
      throw SetupError(
          "--port and --calibration exclude each other, as a calibration is of one port: leave one of them out");
    setting.calibration = usable_calibration(options.calibration);
    setting.calibrated = true;
  }
  Calibration& calibration = setting.calibration;
  setting.measured_packets = calibration.packets;
  setting.measured_lanes = calibration.lanes;
  calibration.lanes = plan_lanes_of(options.lanes, calibration.lanes);
  if (!options.mtu.empty()) calibration.packets.set_mtu(option_number("--mtu", options.mtu, 1500, 576, 65535));
  if (!options.latency_us.empty())
    calibration.link.latency = 1e-6 * option_number("--latency-us", options.latency_us, 0, 0, 1e7);
  unsigned nodes = calibration.links.empty() ? 4 : 0;
  for (const LinkCost& link : calibration.links) nodes = std::max({nodes, link.from + 1, link.to + 1});
  setting.nodes_assumed = options.nodes.empty() && calibration.links.empty();
  setting.gbps_assumed = options.gbps.empty() && calibration.links.empty();
  setting.nodes = whole_number("--nodes", options.nodes, nodes, 1, kMaxWorld);
  if (!options.cores.empty()) calibration.cores = option_number("--cores", options.cores, 0, 0.01, 65536);
  if (setting.calibrated && !calibration.links.empty() && !calibration.exchanges.empty()) {
    setting.rings.push_back({nodes, slowest(calibration.links, calibration.link), calibration.exchanges});
  }
  if (!setting.calibrated) {
    for (KnownRing& each : nearest_rings(known_rings(), calibration.port, calibration.cores)) {
      setting.rings.push_back(std::move(each.ring));
      setting.known_cores = each.cores;
    }
  }
  const double known = calibration.link.bandwidth * 8e-9;
  setting.gbps = option_number("--gbps", options.gbps, known > 0 ? known : 10, 1e-3, kMostGbps);
  if (!options.gbps.empty() || known <= 0) calibration.link.bandwidth = setting.gbps * 1e9 / 8;
  if (options.gbps.empty()) return;
  calibration.link.at_least = false;
  // The user knows the rate of links that the cores were too slow to measure. The all-reduces were measured on these.
  for (MeasuredRing& each : setting.rings) {
    if (each.link.at_least) each.link.bandwidth = std::max(each.link.bandwidth, calibration.link.bandwidth);
  }
}

// Returns why no strategy can carry the codec's sums among `world` nodes (0: several worlds), or "" if one can.
std::string ways_fault(const PlanSetting& setting, const std::string& codec, unsigned world) {
  std::string fault;
  for (const StrategyId& each : setting.strategies) {
    fault = strategy_fault(find_codec_pair(follows_gradients(codec) ? kFollowedCodec : codec), each, setting.strategies,
                           world);
    if (fault.empty()) break;
  }
  return fault;
}

// Removes codecs that no strategy can carry. Throws SetupError if such a codec was named.
void leave_out_codecs(const PlanOptions& options, PlanSetting& setting) {
  const unsigned world = options.what_if.empty() ? setting.nodes : 0;
  const bool named = !options.codecs.empty() && !names_all(options.codecs.front());
  std::erase_if(setting.codecs, [&](const std::string& codec) {
    const std::string fault = ways_fault(setting, codec, world);
    if (named && !fault.empty()) throw SetupError(fmt::format("--codecs '{}': {}", codec, fault));
    return !fault.empty();
  });
}

// Returns the names of gradlane's measured codecs.
std::vector<std::string> measured_codecs(const PlanSetting& setting) {
  std::vector<std::string> names;
  const MeasuredRing* const ring = nearest_ring(setting.rings, setting.nodes, setting.calibration.link.bandwidth);
  if (ring == nullptr) return names;
  for (const MeasuredExchange& each : ring->exchanges) {
    if (each.library == kOwnLibrary) names.push_back(each.codec);
  }
  return names;
}

void read_codecs(const PlanOptions& options, PlanSetting& setting) {
  const Calibration& calibration = setting.calibration;
  const std::vector<std::string> measured = measured_codecs(setting);
  const auto known = [&](const std::string& name) {
    return std::ranges::find(measured, name) != measured.end() || setting.find_cost(name) != nullptr;
  };
  const auto add = [&](const std::string& name) {
    const bool there = std::ranges::find(setting.codecs, name) != setting.codecs.end();
    if (!there && known(name) && name != kDefaultCodec) setting.codecs.push_back(name);
  };
  for (const std::string& each : codec_list(options.codecs)) {
    const std::string name = follows_gradients(each) ? kAdaptiveCodec : find_codec(each).name();
    if (!known(name) && !names_all(options.codecs.front())) {
      std::vector<std::string> there = measured;
      for (const CodecCost& cost : calibration.codecs) {
        if (std::ranges::find(measured, cost.name) == measured.end()) there.push_back(cost.name);
      }
      throw SetupError(fmt::format("--codecs '{}': there are no figures for it {}; there are figures for {}", name,
                                   setting.calibrated ? "in the calibration" : "without a calibration",
                                   fmt::join(there, ", ")));
    }
    add(name);
  }
  if (!options.codecs.empty()) return;
  const auto place = [](const std::string& name) {
    return std::ranges::find(kUsualCodecs, follows_gradients(name) ? kFollowedCodec : name) - std::begin(kUsualCodecs);
  };
  for (const std::string& name : measured) add(name);
  std::ranges::stable_sort(setting.codecs, {}, place);
  // Predictions from parts leave out what PyTorch costs, so they are not put next to measured ones.
  if (!setting.codecs.empty()) return;
  for (const char* const name : kUsualCodecs) add(name);
}

// A name of --what-if and its values: "4..96", "1,2,5".
struct Range {
  const char* name;
  std::vector<double>& values;
  double least;
  double most;
  bool whole;
};

// Returns values from `from` to `to`, both included. With `doublings`, each is twice the previous one. Otherwise the
// values between are 1, 2 and 5 times the powers of ten.
std::vector<double> steps(double from, double to, bool doublings) {
  std::vector<double> values;
  if (doublings) {
    for (double value = from; value < to; value *= 2) values.push_back(value);
  } else {
    values.push_back(from);
    for (double decade = std::pow(10, std::floor(std::log10(from))); decade < to; decade *= 10) {
      for (const double each : {1.0, 2.0, 5.0}) {
        if (each * decade > from * 1.001 && each * decade < to * 0.999) values.push_back(each * decade);
      }
    }
  }
  if (values.empty() || values.back() < to) values.push_back(to);
  return values;
}

void read_range(const std::string& text, const Range& range) {
  const auto refuse = [&] {
    throw SetupError(fmt::format("--what-if '{}={}': must be numbers from {:g} to {:g}, as in 4..96 or 4,8,16",
                                 range.name, text, range.least, range.most));
  };
  const auto value_of = [&](std::string_view word) {
    const auto value = parse_real(word, range.least, range.most);
    if (!value || (range.whole && *value != std::floor(*value))) refuse();
    return *value;
  };
  range.values.clear();
  if (const size_t dots = text.find(".."); dots != text.npos) {
    const double from = value_of(std::string_view(text).substr(0, dots));
    const double to = value_of(std::string_view(text).substr(dots + 2));
    if (to < from) {
      throw SetupError(
          fmt::format("--what-if '{0}={1}': the lower end comes first, {0}={2:g}..{3:g}", range.name, text, to, from));
    }
    range.values = steps(from, to, range.least >= 1);
    return;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    range.values.push_back(value_of(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
}

// Sets the usual strategies. If a ring was calibrated, those that it does not allow go to `strategies_not_allowed`.
void read_ways(PlanSetting& setting) {
  const std::vector<std::string>& allowed = setting.calibration.strategies;
  for (const StrategyId& each : find_strategies("ring,direct")) {
    const bool known = allowed.empty() || std::ranges::find(allowed, each.name().view()) != allowed.end();
    (known ? setting.strategies : setting.strategies_not_allowed).push_back(each);
  }
  if (setting.strategies.empty()) setting.strategies.swap(setting.strategies_not_allowed);
}

void check_strategies(const PlanSetting& setting, unsigned nodes) {
  for (const StrategyId& each : setting.strategies) {
    if (const std::string fault = strategy_fault(each, nodes); !fault.empty()) {
      throw SetupError(fmt::format("--strategy, {} nodes: {}", nodes, fault));
    }
  }
}

}  // namespace

const CodecCost* PlanSetting::find_cost(const std::string& name) const {
  return calibration.find(follows_gradients(name) ? kFollowedCodec : name);
}

bool follows_gradients(std::string_view codec) noexcept {
  return std::ranges::any_of(kFollows, [codec](std::string_view name) {
    return codec.starts_with(name) && (codec.size() == name.size() || codec[name.size()] == ':');
  });
}

PlanPort plan_port_of(const std::string& text) {
  if (text.empty()) return PlanPort::kUdp;
  for (const PlanPort port : kPorts) {
    if (text == plan_port_name(port)) return port;
  }
  throw SetupError(fmt::format("--port '{}': must be udp, packets or card", text));
}

unsigned plan_lanes_of(const std::string& text, unsigned usual) { return whole_number("--lanes", text, usual, 1, 256); }

PlanSetting make_plan_setting(const PlanOptions& options) {
  PlanSetting setting;
  read_model(options, setting);
  read_effects(options, setting);
  read_costs(options, setting);
  read_codecs(options, setting);
  for (const std::string& names : options.strategies) {
    for (const StrategyId& each : find_strategies(names)) setting.strategies.push_back(each);
  }
  setting.strategies_given = !setting.strategies.empty();
  if (!setting.strategies_given) read_ways(setting);
  if (options.what_if.empty()) check_strategies(setting, setting.nodes);
  leave_out_codecs(options, setting);
  return setting;
}

WhatIf parse_what_if(const std::vector<std::string>& texts, const PlanSetting& setting) {
  WhatIf grid = {{static_cast<double>(setting.nodes)}, {setting.gbps}, {static_cast<double>(setting.batch)}, {1}};
  const Range ranges[] = {{"nodes", grid.nodes, 2, kMaxWorld, true},
                          {"gbps", grid.gbps, 1e-3, kMostGbps, false},
                          {"batch", grid.batch, 1, kMostBatch, true},
                          {"compute", grid.compute, 1, kMostFaster, false}};
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const auto range =
        std::ranges::find_if(ranges, [&](const Range& each) { return text.substr(0, equals) == each.name; });
    if (equals == text.npos || range == std::end(ranges)) {
      throw SetupError(fmt::format("--what-if '{}': must be nodes=, gbps=, batch= or compute= and a range", text));
    }
    read_range(text.substr(equals + 1), *range);
  }
  for (const double nodes : grid.nodes) check_strategies(setting, static_cast<unsigned>(nodes));
  return grid;
}

}  // namespace gradlane
