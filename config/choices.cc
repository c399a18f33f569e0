// choices.cc - what a configuration leaves to the library to choose, and by what (set-up only)
#include "config/choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/parse.h"
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

void read_choice(const Value& each, const std::vector<StrategyId>& strategies, std::vector<PlanChoice>& plan) {
  const size_t faults = each.faults().count();
  const Section section(each, kChoiceKeys);
  PlanChoice choice;
  if (const auto from = section.need("from")) choice.from = from->size(0, kMostBytes).value_or(0);
  choice.to = kMostBytes;
  if (const auto to = section.find("to")) choice.to = to->size(1, kMostBytes).value_or(0);
  read_strategy(section, choice, strategies);
  if (section.need("codec")) read_codec(section, choice.codec);
  if (each.faults().count() != faults) return;
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

std::vector<PlanChoice> parse_plan(std::string_view text, const std::string& file,
                                   const std::vector<StrategyId>& strategies) {
  const YamlNode tree = parse_yaml(text, file);
  ConfigFaults faults(file, {});
  const Section root(Value(tree, "", faults), kPlanKeys);
  if (tree.kind != YamlNode::Kind::kMap) faults.throw_first();
  if (const auto version = root.need("plan")) (void)version->whole(kPlanVersion, kPlanVersion);
  std::vector<PlanChoice> plan;
  const auto choices = root.need("choices");
  const auto list = choices ? choices->list("choices") : std::nullopt;
  for (size_t i = 0; list && i < list->size(); ++i) read_choice((*list)[i], strategies, plan);
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

void read_choices(const Section& root, NodeConfig& config) {
  read_codec_or_auto(root, config);
  if (const auto value = root.find("strategy")) config.auto_strategy = value->choice(kStrategyWords).has_value();
  if (const auto path = root.find("calibration")) config.calibration = path->text(kLongestPath).value_or("");
  const auto path = root.find("plan");
  if (!path) return;
  config.plan_file = path->text(kLongestPath).value_or("");
  if (config.plan_file.empty()) return;
  try {
    config.plan = parse_plan(read_config_file(config.plan_file), config.plan_file, config.strategies);
  } catch (const SetupError& error) {
    path->fault(error.what());
  }
}

}  // namespace gradlane
