// strategies.cc - the key `strategies` of a configuration file, and the nodes that they link (set-up only)
#include "config/strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.h"
#include "collectives/strategy/topology.h"

namespace gradlane {
namespace {

constexpr size_t kLongestStrategy = 31;
constexpr const char* kStreamWord = "stream";

class StrategiesReader {
 public:
  // `checked` means that the number of ranks is known.
  StrategiesReader(NodeConfig& config, bool checked) : config_(config), checked_(checked) {}

  void read(const Value& value) {
    const auto items = value.list("names of strategies");
    if (!items) return;
    config_.strategies.clear();
    for (const Value& item : *items) read_one(item);
    for (size_t i = 0; i < places_.size(); ++i) check(i);
    if (items->empty() || config_.strategies.size() > kMaxStrategies) {
      value.fault(fmt::format("{} strategies, allowed: 1 to {}", config_.strategies.size(), kMaxStrategies));
    }
  }

 private:
  // Reads one item. In YAML, [aggregator:0,stream] is a list of two, so "stream" belongs to the item before it.
  void read_one(const Value& item) {
    const auto name = item.text(kLongestStrategy);
    if (!name) return;
    if (*name == kStreamWord && !places_.empty()) {
      StrategyId& before = config_.strategies.back();
      if (before.kind == StrategyId::Kind::kAggregator && !std::exchange(before.stream, true)) return;
    }
    try {
      config_.strategies.push_back(find_strategy(*name));
      places_.push_back(item);
    } catch (const SetupError& error) {
      item.fault(error.what());
    }
  }

  void check(size_t number) const {
    const StrategyId& strategy = config_.strategies[number];
    const auto first = std::ranges::find(config_.strategies, strategy) - config_.strategies.begin();
    if (static_cast<size_t>(first) != number) {
      places_[number].fault(
          fmt::format("{} is already strategies[{}], allowed: different ones", strategy.name().view(), first));
    }
    const std::string fault = checked_ ? strategy_fault(strategy, world_of(config_)) : "";
    if (!fault.empty()) places_[number].fault(fault);
  }

  NodeConfig& config_;
  const bool checked_;
  std::vector<Value> places_;
};

// Returns for each node whether one of its ranks has a link to a rank of this node, with these strategies.
std::array<bool, kMaxNodes> nodes_of(const NodeConfig& config, std::span<const StrategyId> strategies) {
  std::array<bool, kMaxNodes> nodes{};
  const unsigned ranks = ranks_per_node(config);
  for (unsigned rank = config.rank * ranks; rank < (config.rank + 1) * ranks; ++rank) {
    for (const unsigned other : linked_ranks(strategies, world_of(config), rank)) nodes[other / ranks] = true;
  }
  nodes[config.rank] = false;
  return nodes;
}

}  // namespace

void read_strategies(const Section& root, NodeConfig& config, bool checked) {
  if (const auto value = root.find("strategies")) StrategiesReader(config, checked).read(*value);
}

std::vector<unsigned> linked_nodes(const NodeConfig& config) {
  const auto count = static_cast<unsigned>(config.nodes.size());
  const std::array<bool, kMaxNodes> linked = nodes_of(config, config.strategies);
  std::vector<unsigned> nodes;
  const auto add = [&](unsigned node) {
    if (linked[node] && std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  };
  add((config.rank + count - 1) % count);
  add((config.rank + 1) % count);
  for (unsigned node = 0; node < count; ++node) add(node);
  return nodes;
}

std::vector<std::string> strategy_names(const std::vector<StrategyId>& strategies) {
  std::vector<std::string> names;
  for (const StrategyId& it : strategies) names.emplace_back(it.name().view());
  return names;
}

std::string links_text(const NodeConfig& config, unsigned node) {
  if (!nodes_of(config, {})[node]) {
    for (const StrategyId& it : config.strategies) {
      if (nodes_of(config, {&it, 1})[node]) return fmt::format("each node that strategy {} needs", it.name().view());
    }
  }
  return "each neighbour in the ring";
}

}  // namespace gradlane
