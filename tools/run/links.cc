// links.cc - the strategies of `gradlane run`, and the links between nodes that they need (set-up only)
#include "tools/run/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "config/choices.h"
#include "config/strategies.h"

namespace gradlane {
namespace {

constexpr size_t kMaxLinks = 15;  // per node, with vhost or memif: each link has packet buffers
static_assert(kMaxLinks <= kMaxPorts);

// Throws SetupError if there are too many links. With vhost and memif, each end of a link is a device of its node's
// process. With kRing, all nodes share one process.
void check_links(const RunSettings& plan, const std::string& what) {
  const bool one_process = plan.link == RunSettings::Link::kRing;
  size_t ends = 0;
  for (unsigned node = 0; node < plan.nodes; ++node) {
    const size_t links = links_of(plan, node).size();
    ends += links;
    if (one_process || links <= kMaxLinks) continue;
    throw SetupError(
        fmt::format("{}: node {} would have {} links; at most {}: use --link veth, where one link reaches all nodes",
                    what, node, links, kMaxLinks));
  }
  if (!one_process || ends <= kMaxProcessPorts) return;
  throw SetupError(fmt::format(
      "{}: that makes {} ends of links in one process; at most {}: use --link vhost, which has a process per node",
      what, ends, kMaxProcessPorts));
}

}  // namespace

void plan_strategies(const RunOptions& options, RunSettings& plan) {
  const std::string what = "--strategies " + options.strategies;
  const bool given = !options.strategies.empty();
  if (given && plan.link == RunSettings::Link::kAccelerator) {
    throw SetupError(fmt::format("{}: with --link accelerator there are no operations", what));
  }
  if (options.strategies == kAutoCodec) {
    throw SetupError(
        fmt::format("{}: name the strategies that operations may use, as in ring,direct; with --codec auto, "
                    "gradlane chooses among them",
                    what));
  }
  if (given) plan.strategies = find_strategies(options.strategies);
  if (plan.strategies.size() > kMaxStrategies) {
    throw SetupError(fmt::format("{}: {} strategies; at most {}", what, plan.strategies.size(), kMaxStrategies));
  }
  for (size_t i = 0; i < plan.strategies.size(); ++i) {
    const StrategyId& it = plan.strategies[i];
    const auto first = std::ranges::find(plan.strategies, it) - plan.strategies.begin();
    if (static_cast<size_t>(first) != i) throw SetupError(fmt::format("{}: {} twice", what, it.name().view()));
    const std::string fault = strategy_fault(it, plan.local_reduce ? plan.nodes : plan.ranks());
    if (!fault.empty()) throw SetupError(fmt::format("{}: {}", what, fault));
  }
  if (plan.has_namespaces() || plan.link == RunSettings::Link::kUdp) return;
  check_links(plan, fmt::format("-n {} --link {}{}", plan.nodes, plan.link_name, given ? " " + what : ""));
}

std::vector<RunLink> links_of(const RunSettings& plan, unsigned node) {
  NodeConfig config;
  config.rank = node;
  config.nodes.resize(plan.nodes);
  config.trainers = plan.trainers;
  config.local_reduce = plan.local_reduce;
  config.strategies = plan.strategies;
  const auto next = [&plan](unsigned other) { return (other + 1) % plan.nodes; };
  std::vector<RunLink> links;
  for (const unsigned other : linked_nodes(config)) {
    // Two nodes have one link, because the next node is also the previous one.
    if (other == next(node) && (plan.nodes > 2 || node == 0)) {
      links.insert(links.begin(), {node, other, true});
    } else if (node == next(other)) {
      links.push_back({other, node, true});
    } else {
      links.push_back({std::min(node, other), std::max(node, other), false});
    }
  }
  return links;
}

}  // namespace gradlane
