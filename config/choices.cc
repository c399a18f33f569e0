// choices.cc - what a configuration leaves to the library to choose, and by what (set-up only)
#include "config/choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/parse.h"
#include "collectives/strategy/codec_ways.h"
#include "config/common_sections.h"
#include "config/section.h"
#include "config/strategies.h"
#include "config/values.h"
#include "config/yaml_tree.h"

namespace gradlane {
namespace {

constexpr const char* kPlanKeys[] = {"plan", "choices"};
constexpr const char* kChoiceKeys[] = {"from", "to", "strategy", "codec"};
constexpr const char* kStrategyWords[] = {kAutoCodec};
constexpr unsigned kPlanVersion = 1;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
constexpr unsigned kMostBits = 30;
constexpr size_t kLongestName = 31;

void read_codec_or_auto(const Section& root, NodeConfig& config) {
  const auto value = root.find("codec");
  const YamlNode* const node = value ? &value->node() : nullptr;
  if (node == nullptr || node->kind != YamlNode::Kind::kScalar || !begins_auto(node->text)) {
    return read_codec(root, config.codec);
  }
  if (!is_auto_codec(node->text)) return value->fault(quoted(node->text) + " is no codec, allowed: " + kAutoUsage);
  config.auto_codec = node->text;
}

// A choice is of one of those that are allowed.
void read_strategy(const Section& section, PlanChoice& choice, const std::vector<StrategyId>& strategies) {
  const auto value = section.need("strategy");
  const auto name = value ? value->text(kLongestName) : std::nullopt;
  if (!name) return;
  try {
    choice.strategy = find_strategy(*name);
  } catch (const SetupError& error) {
    return value->fault(error.what());
  }
  if (choice.strategy == StrategyId{} || std::ranges::find(strategies, choice.strategy) != strategies.end()) return;
  value->fault(fmt::format("{} is none of `strategies` of the configuration, allowed: ring, {}", *name,
                           fmt::join(strategy_names(strategies), ", ")));
}

// What `auto` cannot choose would never be gone by.
void check_codec(const Section& section, const PlanChoice& choice, const std::vector<StrategyId>& strategies,
                 unsigned ranks) {
  const CodecRow& row = choice.codec.row();
  const ErrorBound bound = error_bound(choice.codec);
  const std::string name(choice.codec.name());
  std::string fault;
  if (bound.kind != ErrorBound::Kind::kExact && bound.bits == 0) {
    fault =
        name + " has no bound of its error that `auto` could be asked for, allowed: raw, fixed:B, fixed:rel=B, bf16";
  } else if (ranks != 0 && !carries(choice.strategy, row, ranks)) {
    fault = fmt::format("{} does not add, and {} has nobody who does it for all, allowed: direct, or another codec",
                        name, choice.strategy.name().view());
  } else if (ranks != 0 && needs_links(row) && !links_all(strategies, ranks)) {
    fault = name + " needs links between all ranks, allowed: with `direct` among `strategies`";
  }
  if (!fault.empty()) section.find("codec")->fault(fault);
}

void read_choice(const Value& each, const std::vector<StrategyId>& strategies, unsigned ranks,
                 std::vector<PlanChoice>& plan) {
  const size_t faults = each.faults().count();
  const Section section(each, kChoiceKeys);
  PlanChoice choice;
  if (const auto from = section.need("from")) choice.from = from->size(0, kMostBytes).value_or(0);
  choice.to = kMostBytes;
  if (const auto to = section.find("to")) choice.to = to->size(1, kMostBytes).value_or(0);
  read_strategy(section, choice, strategies);
  if (section.need("codec")) read_codec(section, choice.codec);
  if (each.faults().count() != faults) return;
  check_codec(section, choice, strategies, ranks);
  if (choice.to <= choice.from) {
    each.fault(fmt::format("from {} to {} is nothing, allowed: `to` above `from`", size_text(choice.from),
                           size_text(choice.to)));
  }
  for (const PlanChoice& before : plan) {
    if (choice.from >= before.to || before.from >= choice.to) continue;
    each.fault(fmt::format("sizes from {} to {} have a row before, allowed: one for each size",
                           size_text(std::max(choice.from, before.from)), size_text(std::min(choice.to, before.to))));
    break;
  }
  plan.push_back(choice);
}

}  // namespace

bool begins_auto(std::string_view name) noexcept {
  constexpr std::string_view kWord = kAutoCodec;
  return name.starts_with(kWord) &&
         (name.size() == kWord.size() || std::string_view(":,/+").find(name[kWord.size()]) != std::string_view::npos);
}

bool is_auto_codec(std::string_view name) noexcept {
  if (!begins_auto(name)) return false;
  std::string_view rest = name.substr(std::string_view(kAutoCodec).size());
  if (rest.empty()) return true;
  for (const std::string_view start : {":2^-", ":rel="}) {
    if (!rest.starts_with(start)) continue;
    rest.remove_prefix(start.size());
    return !rest.empty() && rest.front() != '0' && parse_decimal(std::string(rest), 1, kMostBits).has_value();
  }
  return false;
}

LeftOpen left_open(const NodeConfig& config) noexcept {
  LeftOpen it{.strategy = config.auto_strategy};
  const std::string_view name = config.auto_codec;
  if (name.empty()) return it;
  it.codec = LeftOpen::Codec::kExact;
  const size_t digits = name.find_first_of("-=");
  if (digits == name.npos) return it;
  it.codec = name[digits] == '-' ? LeftOpen::Codec::kAbsolute : LeftOpen::Codec::kRelative;
  (void)std::from_chars(name.data() + digits + 1, name.data() + name.size(), it.bits);
  return it;
}

ErrorBound error_bound(const Codec& codec) noexcept {
  if (codec.row().exact()) return {};
  // Errors that are there even where all is 0 are those of the smallest floats.
  constexpr double kTiny = 0x1p-100;
  const CodecError error = codec.error();
  const double relative = error.relative + error.of_largest;
  if (!error.bounded) return {ErrorBound::Kind::kRelative, 0};
  const bool absolute = relative == 0;
  if (!absolute && error.absolute > kTiny) return {ErrorBound::Kind::kRelative, 0};
  const double bits = std::floor(-std::log2(absolute ? error.absolute : relative));
  return {absolute ? ErrorBound::Kind::kAbsolute : ErrorBound::Kind::kRelative,
          static_cast<unsigned>(std::clamp(bits, 0.0, 255.0))};
}

std::vector<PlanChoice> parse_plan(std::string_view text, const std::string& file,
                                   const std::vector<StrategyId>& strategies, unsigned ranks) {
  const YamlNode tree = parse_yaml(text, file);
  ConfigFaults faults(file, {});
  const Section root(Value(tree, "", faults), kPlanKeys);
  if (tree.kind != YamlNode::Kind::kMap) faults.throw_first();
  if (const auto version = root.need("plan")) (void)version->whole(kPlanVersion, kPlanVersion);
  std::vector<PlanChoice> plan;
  const auto choices = root.need("choices");
  const auto list = choices ? choices->list("choices") : std::nullopt;
  for (size_t i = 0; list && i < list->size(); ++i) read_choice((*list)[i], strategies, ranks, plan);
  if (plan.size() > kMaxPlanChoices) {
    choices->fault(fmt::format("{} choices, allowed: up to {}", plan.size(), kMaxPlanChoices));
  }
  faults.throw_first();
  return plan;
}

std::string plan_text(const std::vector<PlanChoice>& plan) {
  std::string text = fmt::format("plan: {}\nchoices:\n", kPlanVersion);
  for (const PlanChoice& each : plan) {
    text += fmt::format("  - {{from: {}, ", size_text(each.from));
    if (each.to != kMostBytes) text += fmt::format("to: {}, ", size_text(each.to));
    text += fmt::format("strategy: '{}', codec: '{}'}}\n", each.strategy.name().view(), each.codec.name());
  }
  return text;
}

void read_choices(const Section& root, NodeConfig& config, unsigned ranks) {
  read_codec_or_auto(root, config);
  if (const auto value = root.find("strategy")) config.auto_strategy = value->choice(kStrategyWords).has_value();
  if (const auto path = root.find("calibration")) config.calibration = path->text(kLongestPath).value_or("");
  const auto path = root.find("plan");
  if (!path) return;
  config.plan_file = path->text(kLongestPath).value_or("");
  if (config.plan_file.empty()) return;
  try {
    config.plan = parse_plan(read_config_file(config.plan_file), config.plan_file, config.strategies, ranks);
  } catch (const SetupError& error) {
    path->fault(error.what());
  }
}

}  // namespace gradlane
