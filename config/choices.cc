// choices.cc - the keys by which the library may choose codecs and strategies (set-up only)
#include "config/choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "collectives/strategy/codec_needs.h"
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
constexpr size_t kLongestStrategyName = 31;

void read_codec_or_auto(const Section& root, NodeConfig& config) {
  const auto value = root.find("codec");
  const YamlNode* const node = value ? &value->node() : nullptr;
  if (node == nullptr || node->kind != YamlNode::Kind::kScalar || !gl_begins_auto(node->text.c_str())) {
    return read_codec(root, config.codec, std::string(GL_AUTO_USAGE) + ": gradlane chooses the fastest");
  }
  gl_auto asked{};
  if (!gl_parse_auto(node->text.c_str(), &asked))
    return value->fault(quote_text(node->text) + " is not a codec, allowed: " + GL_AUTO_USAGE);
  config.auto_codec = node->text;
}

// Reads `strategy`, whose only word is auto. Users who name a strategy here want it as the default, which is the first
// one of `strategies`. The message tells them.
void read_strategy_word(const Value& value, NodeConfig& config) {
  const YamlNode& node = value.node();
  const std::string name = node.kind == YamlNode::Kind::kScalar ? node.text : "";
  try {
    if (!name.empty() && name != kAutoCodec) {
      const StrategyId it = find_strategy(name);
      return value.fault(
          fmt::format("{} is not for this key, allowed: {}; set `strategies: [{}]` for that: it lists the strategies "
                      "that operations may use, the default first",
                      quote_text(name), kAutoCodec, it.name().view()));
    }
  } catch (const SetupError&) {
    // The name is no strategy either.
  }
  config.auto_strategy = value.choice(kStrategyWords).has_value();
}

// Reads the strategy of a choice. It must be one of `strategies`, or the ring.
void read_strategy(const Section& section, PlanChoice& choice, const std::vector<StrategyId>& strategies) {
  const auto value = section.need("strategy");
  const auto name = value ? value->text(kLongestStrategyName) : std::nullopt;
  if (!name) return;
  try {
    choice.strategy = find_strategy(*name);
  } catch (const SetupError& error) {
    return value->fault(error.what());
  }
  if (choice.strategy == StrategyId{} || std::ranges::find(strategies, choice.strategy) != strategies.end()) return;
  std::vector<std::string> names = strategy_names(strategies);
  if (std::ranges::find(strategies, StrategyId{}) == strategies.end()) names.insert(names.begin(), "ring");
  value->fault(fmt::format("{} is not in `strategies` of the configuration, allowed: {}; or add it there", *name,
                           fmt::join(names, ", ")));
}

// Reads a path. A path in a file is relative to the folder of that file. A path on the command line is relative to the
// current directory.
std::string read_path(const Value& value, const NodeConfig& config) {
  const auto text = value.text(kLongestPath);
  if (!text || text->front() == '/') return text.value_or("");
  const bool of_file = value.node().place.line != 0;
  std::string path = (of_file ? config.file.substr(0, config.file.rfind('/') + 1) : "") + *text;
  std::array<char, kLongestPath + 1> here{};
  if (path.front() != '/' && getcwd(here.data(), here.size()) != nullptr)
    path = fmt::format("{}/{}", here[1] == 0 ? "" : here.data(), path);
  return path.size() > kLongestPath ? *text : path;
}

// Refuses codecs that `auto` cannot choose: their rows would never be used.
void check_codec(const Section& section, const PlanChoice& choice, const std::vector<StrategyId>& strategies,
                 unsigned ranks) {
  const CodecRow& row = choice.codec.row();
  const gl_auto bound = error_bound(choice.codec);
  const std::string name(choice.codec.name());
  std::string fault;
  if (bound.bound != GL_BOUND_EXACT && bound.bits == 0) {
    fault = name + " has no error bound, so `auto` cannot choose it, allowed: raw, pack, fixed:B, fixed:rel=B, bf16";
  } else if (ranks != 0 && !carries(choice.strategy, row, ranks)) {
    fault = fmt::format("{} does not add, and {} has no rank that adds for all, allowed: direct, or another codec",
                        name, choice.strategy.name().view());
  } else if (ranks != 0 && needs_links(row) && !links_all(strategies, ranks)) {
    fault = name + " needs links between all ranks, allowed: only with `direct` in `strategies`";
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
    each.fault(fmt::format("from {} to {} is an empty range, allowed: `to` above `from`", size_text(choice.from),
                           size_text(choice.to)));
  }
  for (const PlanChoice& before : plan) {
    if (choice.from >= before.to || before.from >= choice.to) continue;
    each.fault(fmt::format("sizes from {} to {} are already in an earlier row, allowed: one row for each size",
                           size_text(std::max(choice.from, before.from)), size_text(std::min(choice.to, before.to))));
    break;
  }
  plan.push_back(choice);
}

}  // namespace

AutoScope auto_scope(const NodeConfig& config) noexcept {
  AutoScope it{.strategy = config.auto_strategy};
  gl_auto asked{};
  if (gl_parse_auto(config.auto_codec.c_str(), &asked)) it.codec = asked;
  return it;
}

gl_auto error_bound(const Codec& codec) noexcept {
  if (codec.row().exact()) return {};
  // Absolute errors up to this size come from the smallest floats. A relative bound may ignore them.
  constexpr double kTiny = 0x1p-100;
  const CodecError error = codec.error();
  const double relative = error.relative + error.of_largest;
  if (!error.bounded) return {GL_BOUND_RELATIVE, 0};
  const bool absolute = relative == 0;
  if (!absolute && error.absolute > kTiny) return {GL_BOUND_RELATIVE, 0};
  const double bits = std::floor(-std::log2(absolute ? error.absolute : relative));
  return {absolute ? GL_BOUND_ABSOLUTE : GL_BOUND_RELATIVE, static_cast<unsigned>(std::clamp(bits, 0.0, 255.0))};
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
  uint64_t end = 0;
  for (const PlanChoice& each : plan) {
    if (each.from > end) {
      text +=
          fmt::format("  # {} to {} has no row: raw, by the first strategy\n", size_text(end), size_text(each.from));
    }
    end = std::max(end, each.to);
    text += fmt::format("  - {{from: {}, ", size_text(each.from));
    if (each.to != kMostBytes) text += fmt::format("to: {}, ", size_text(each.to));
    text += fmt::format("strategy: '{}', codec: '{}'}}\n", each.strategy.name().view(), each.codec.name());
  }
  if (end != kMostBytes)
    text += fmt::format("  # {} and more has no row: raw, by the first strategy\n", size_text(end));
  return text;
}

std::string choices_warning(const NodeConfig& config) {
  const bool left = !config.auto_codec.empty() || config.auto_strategy;
  for (const auto& [key, path] : {std::pair{"plan", &config.plan_file}, {"calibration", &config.calibration}}) {
    if (path->empty() || left) continue;
    return fmt::format(
        "{} {}: only calls that name codec auto use it, because `codec` is {} here; for all calls, set `codec: auto`, "
        "`codec: auto:2^-B` or `strategy: auto`",
        key, *path, config.codec.name());
  }
  if (config.auto_codec != kAutoCodec) return "";
  for (const PlanChoice& each : config.plan) {
    if (each.codec.row().exact()) continue;
    return fmt::format(
        "plan {}: only calls that name a bound use its {}, because `codec` is auto here, which is exact; `codec: "
        "auto:2^-B` allows rounding",
        config.plan_file, each.codec.name());
  }
  return "";
}

void read_choices(const Section& root, NodeConfig& config, unsigned ranks) {
  read_codec_or_auto(root, config);
  if (config.local_reduce && config.codec.row().rounds_once) {
    root.find("codec")->fault(config.codec.name() +
                              " would round sums twice, because `local_reduce` adds up the trainers of a node first, "
                              "allowed: another codec, or `local_reduce: false`");
  }
  if (const auto value = root.find("strategy")) read_strategy_word(*value, config);
  if (const auto path = root.find("calibration")) config.calibration = read_path(*path, config);
  const auto path = root.find("plan");
  if (!path) return;
  config.plan_file = read_path(*path, config);
  if (config.plan_file.empty()) return;
  try {
    config.plan = parse_plan(read_config_file(config.plan_file, "plan"), config.plan_file, config.strategies, ranks);
  } catch (const SetupError& error) {
    path->fault(error.what());
  }
}

}  // namespace gradlane
