// settings.cc - the options of `gradlane sim`, understood and checked
#include "tools/sim/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/parse.h"
#include "collectives/exchange_config.h"
#include "sim/data.h"

namespace gradlane {
namespace {

constexpr OpKind kOps[] = {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather,
                           OpKind::kBroadcast, OpKind::kBarrier,       OpKind::kReduce,
                           OpKind::kGather,    OpKind::kScatter,       OpKind::kAllToAll};
constexpr size_t kMaxBytes = size_t{64} << 30;

// A unit of numbers that may be fractions, as in 1.5M.
struct RealUnit {
  std::string_view suffix;
  double factor;
};
constexpr RealUnit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr RealUnit kSizes[] = {{"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"", 1}};
constexpr RealUnit kShares[] = {{"%", 0.01}, {"", 1}};
constexpr RealUnit kNone[] = {{"", 1}};

// An option: its name, and its allowed values in numbers and in words.
struct Quantity {
  const char* option;
  std::span<const RealUnit> units;
  double least;
  double most;
  const char* allowed;
};

[[noreturn]] void reject(const char* option, const std::string& text, std::string_view allowed) {
  throw SetupError(fmt::format("{} '{}': must be {}", option, text, allowed));
}

double parse(const Quantity& quantity, const std::string& text) {
  std::string_view suffix = text;
  if (const auto number = take_real(suffix, true)) {
    const auto unit = std::ranges::find(quantity.units, suffix, &RealUnit::suffix);
    const bool known = unit != quantity.units.end();
    // A zero needs no unit.
    const double value = known ? *number * unit->factor : *number;
    const bool understood = known || (suffix.empty() && *number == 0);
    if (understood && value >= quantity.least && value <= quantity.most) return value;
  }
  reject(quantity.option, text, quantity.allowed);
}

// Rounds to a whole number, because 50us is not exactly 50e-6.
uint64_t rounded(double value) { return static_cast<uint64_t>(value + 0.5); }

uint64_t parse_whole_value(const Quantity& quantity, const std::string& text) {
  const double value = parse(quantity, text);
  if (value != static_cast<double>(static_cast<uint64_t>(value))) reject(quantity.option, text, quantity.allowed);
  return static_cast<uint64_t>(value);
}

std::string or_default(const std::string& chosen, const std::string& fallback) {
  return chosen.empty() ? fallback : chosen;
}

double parse_share(const char* option, const std::string& text) {
  return parse({option, kShares, 0, 1, "a probability from 0 to 1, as in 0.001 or 0.1%"}, or_default(text, "0"));
}

// Removes dashes: "all-reduce" and "all_reduce" mean the same as "allreduce".
std::string without_dashes(std::string name) {
  std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
  return name;
}

OpKind parse_op(const std::string& text) {
  for (const OpKind kind : kOps) {
    if (without_dashes(text) == without_dashes(op_name(kind))) return kind;
  }
  throw SetupError(fmt::format("unknown operation '{}'; allowed: {}", text, fmt::join(op_names(), ", ")));
}

uint64_t parse_seed(const std::string& text) {
  const auto seed = parse_decimal(text);
  if (!seed) reject("--seed", text, "a whole number from 0 to 2^64 - 1");
  return *seed;
}

LinkModel parse_link(const SimOptions& options) {
  LinkModel link;
  const Quantity gbps = {"--gbps", kNone, 0.001, 10000, "Gb/s from 0.001 to 10000"};
  link.bits_per_second = rounded(parse(gbps, or_default(options.gbps, "10")) * 1e9);
  const Quantity rtt = {"--rtt", kTimes, 0, 1, "a time from 0 to 1s with its unit, as in 50us or 1.5ms"};
  link.delay = rounded(parse(rtt, or_default(options.rtt, "50us")) / 2 * 1e9);
  const Quantity queue = {"--queue", kSizes, 2048, 0x1p30, "a size from 2K to 1G, as in 512K"};
  link.queue_bytes = parse_whole_value(queue, or_default(options.queue, "512K"));
  return link;
}

Faults parse_faults(const SimOptions& options, const LinkModel& link) {
  Faults faults;
  faults.loss = parse_share("--loss", options.loss);
  faults.duplicate = parse_share("--dup", options.duplicate);
  faults.reorder = parse_share("--reorder", options.reorder);
  faults.corrupt = parse_share("--corrupt", options.corrupt);
  faults.reorder_delay = 2 * link.delay;
  return faults;
}

void parse_strategies(const SimOptions& options, SimSettings& plan) {
  for (const std::string& names : options.strategies) {
    const std::vector<StrategyId> found = find_strategies(names);
    plan.strategies.insert(plan.strategies.end(), found.begin(), found.end());
  }
  for (const std::string& name : options.plays) plan.plays.push_back(find_flow_model(name));
  plan.uses_first_fitting_strategy = plan.strategies.empty();
  if (plan.uses_first_fitting_strategy) plan.strategies = {StrategyId{}};
  // A codec that the ring cannot carry uses direct. All rows are of the same network.
  const auto candidates = [](const CodecPair& codec) { return strategy_support(codec.there.row()); };
  if (plan.uses_first_fitting_strategy && std::ranges::count(plan.codecs, StrategySupport::kOwners, candidates) != 0) {
    plan.strategies.push_back(find_strategy("direct"));
  }
  plan.names_strategies = !plan.uses_first_fitting_strategy || plan.strategies.size() > 1 || !plan.plays.empty();
  const auto ring = [](const StrategyId& each) { return each == StrategyId{}; };
  const auto any = [&candidates](const CodecPair& codec) { return candidates(codec) == StrategySupport::kAny; };
  const bool cables = std::ranges::all_of(plan.strategies, ring) && std::ranges::all_of(plan.codecs, any);
  if (options.around_switch || !cables || !plan.plays.empty()) plan.topology = SimTopology::kSwitch;
}

// Throws SetupError if a row of the table is not possible.
void check_strategies(const SimSettings& plan) {
  for (const StrategyId& strategy : plan.strategies) {
    const std::string name(strategy.name().view());
    for (const unsigned nodes : plan.nodes) {
      if (const std::string fault = strategy_fault(strategy, nodes); !fault.empty()) {
        throw SetupError("--strategy: " + fault);
      }
    }
    for (const OpKind op : plan.ops) {
      if (supports(strategy, op)) continue;
      std::vector<std::string> can;
      for (const OpKind each : kOps) {
        if (supports(strategy, each)) can.emplace_back(op_name(each));
      }
      throw SetupError(fmt::format("--strategy: {} can do {}, not {}", name, fmt::join(can, ", "), op_name(op)));
    }
  }
  for (const OpKind op : plan.ops) (void)sim_candidates(plan, op);
}

// Checks the flow models. All other settings must be set already.
void check_plays(const SimSettings& plan) {
  if (plan.plays.empty()) return;
  if (plan.ops != std::vector{OpKind::kAllReduce}) throw SetupError("--play works only with all-reduces");
  const Faults& faults = plan.faults;
  if (faults.loss > 0 || faults.duplicate > 0 || faults.reorder > 0 || faults.corrupt > 0) {
    throw SetupError("--play cannot be combined with --loss, --dup, --reorder and --corrupt");
  }
  for (const FlowModel& play : plan.plays) {
    for (const unsigned nodes : plan.nodes) {
      if (const std::string fault = play.fault(nodes); !fault.empty()) throw SetupError("--play: " + fault);
    }
  }
}

// Reads --together and --operations. `plan` must have its kinds of operations and its size already.
void parse_together(const SimOptions& options, SimSettings& plan) {
  constexpr double kMost = 100'000;
  const Quantity together = {"--together", kNone, 1, kMost, "a number of operations from 1 to 100000"};
  for (const std::string& text : options.together) plan.together.push_back(parse_whole_value(together, text));
  if (plan.together.empty()) plan.together = {1};
  const std::string allowed = fmt::format("a number from 1 to {}", kMaxOperations);
  const Quantity operations = {"--operations", kNone, 1, kMaxOperations, allowed.c_str()};
  plan.operations =
      parse_whole_value(operations, or_default(options.operations, std::to_string(ExchangeConfig{}.operations)));
  if (plan.together == std::vector<size_t>{1}) return;
  if (plan.ops != std::vector{OpKind::kAllReduce}) throw SetupError("--together works only with all-reduces");
  if (!plan.plays.empty()) throw SetupError("--together cannot be combined with --play");
  const size_t most = std::ranges::max(plan.together);
  if (plan.bytes / sizeof(float) >= most) return;
  throw SetupError(fmt::format("--together '{}': --size has only {} elements", most, plan.bytes / sizeof(float)));
}

size_t parse_mtu(const std::string& text) {
  const std::string allowed = fmt::format("{} to {} bytes", kMinPacket + kUdpIpBytes, kMaxMtu + kUdpIpBytes);
  const Quantity mtu = {"--mtu", kNone, kMinPacket + kUdpIpBytes, kMaxMtu + kUdpIpBytes, allowed.c_str()};
  return parse_whole_value(mtu, text) - kUdpIpBytes;
}

size_t parse_window(const std::string& text) {
  const std::string allowed = fmt::format("a power of two from {} to {} packets", kMinWindow, kMaxWindow);
  const Quantity quantity = {"--window", kNone, kMinWindow, kMaxWindow, allowed.c_str()};
  const size_t window = parse_whole_value(quantity, text);
  if (!std::has_single_bit(window)) reject("--window", text, allowed);
  return window;
}

}  // namespace

std::vector<StrategyId> allowed_strategies(const SimCandidate& candidate) {
  std::vector<StrategyId> strategies = {candidate.strategy};
  const StrategyId direct = find_strategy("direct");
  if (candidate.strategy != direct && strategy_support(candidate.codec.there.row()) == StrategySupport::kLinks)
    strategies.push_back(direct);
  return strategies;
}

SimCandidates sim_candidates(const SimSettings& plan, OpKind op) {
  SimCandidates found;
  std::vector<size_t> count(plan.codecs.size());
  for (const StrategyId& strategy : plan.strategies) {
    for (size_t i = 0; i < plan.codecs.size(); ++i) {
      if (plan.uses_first_fitting_strategy && count[i] != 0) continue;
      const SimCandidate candidate = {op, strategy, plan.codecs[i]};
      // An operation that only moves data does not add, so every strategy carries it.
      const bool adds = reduces(op) || candidate.codec.back.has_value();
      const std::string fault = adds ? strategy_fault(candidate.codec, strategy, allowed_strategies(candidate)) : "";
      const bool named_pair = candidate.codec.back && !plan.every_codec;
      if (!fault.empty() && named_pair)
        throw SetupError(fmt::format("--codec '{}': {}", candidate.codec.name(), fault));
      if (!fault.empty() && !plan.uses_first_fitting_strategy)
        found.skipped.push_back(candidate.codec.name() + ": " + fault);
      if (!fault.empty()) continue;
      found.candidates.push_back(candidate);
      ++count[i];
    }
  }
  for (size_t i = 0; i < plan.codecs.size(); ++i) {
    if (count[i] != 0 || plan.every_codec) continue;
    const SimCandidate candidate = {op, plan.strategies.front(), plan.codecs[i]};
    throw SetupError(fmt::format("--codec '{}': {}", candidate.codec.name(),
                                 strategy_fault(candidate.codec, candidate.strategy, allowed_strategies(candidate))));
  }
  return found;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpKind kind : kOps) names.emplace_back(op_name(kind));
  return names;
}

SimSettings make_plan(const SimOptions& options) {
  SimSettings plan;
  const std::string worlds = fmt::format("1 to {}", kMaxWorld);
  const Quantity nodes = {"--nodes", kNone, 1, kMaxWorld, worlds.c_str()};
  for (const std::string& text : options.nodes)
    plan.nodes.push_back(static_cast<unsigned>(parse_whole_value(nodes, text)));
  if (plan.nodes.empty()) plan.nodes = {2, 4, 8, 16};
  for (const std::string& name : codec_list(options.codecs)) plan.codecs.push_back(find_codec_pair(name));
  if (plan.codecs.empty()) plan.codecs = {find_codec_pair(kDefaultLossyCodec)};
  plan.every_codec = std::ranges::any_of(options.codecs, names_all);
  for (const std::string& name : options.ops) plan.ops.push_back(parse_op(name));
  if (plan.ops.empty()) plan.ops = {OpKind::kAllReduce};
  parse_strategies(options, plan);
  check_strategies(plan);

  const char* const sizes = "a multiple of 4 from 4 to 64G bytes, as in 64M";
  const Quantity size = {"--size", kSizes, sizeof(float), kMaxBytes, sizes};
  const std::string size_text = or_default(options.size, "16M");
  plan.bytes = parse_whole_value(size, size_text);
  if (plan.bytes % sizeof(float) != 0) reject("--size", size_text, sizes);

  parse_together(options, plan);
  plan.link = parse_link(options);
  plan.faults = parse_faults(options, plan.link);
  plan.mtu = parse_mtu(or_default(options.mtu, "1500"));
  plan.window = parse_window(or_default(options.window, std::to_string(ExchangeConfig{}.window)));
  plan.hash = options.hash;
  const Quantity gamma = {"--gamma", kTimes, 0, 1, "a time per byte with its unit, as in 0.1ns"};
  plan.gamma = parse(gamma, or_default(options.gamma, "0"));
  plan.data = or_default(options.data, "laplace-1e-3");
  const std::vector<std::string> known = data_names();
  if (std::ranges::find(known, plan.data) == known.end()) {
    throw SetupError(fmt::format("unknown data '{}'; allowed: {}", plan.data, fmt::join(known, ", ")));
  }
  plan.seed = parse_seed(or_default(options.seed, "1"));
  check_plays(plan);
  return plan;
}

}  // namespace gradlane
