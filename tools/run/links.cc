// links.cc - the strategies of `gradlane run`, and the links between nodes that they need (set-up only)
//
// Without --strategies, operations use the ring, and direct is allowed so that every codec works. Direct needs a link
// between each two nodes, so larger jobs have only the ring by default.
#include "tools/run/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "collectives/strategy/codec_needs.h"
#include "compress/codec.h"
#include "config/choices.h"
#include "config/strategies.h"

namespace gradlane {
namespace {

constexpr size_t kMaxLinks = 15;  // per node, with vhost or memif: each link has packet buffers
static_assert(kMaxLinks <= kMaxPorts);
constexpr unsigned kMostDirect = 16;  // nodes for which direct is allowed by default

// Returns why there are too many links; empty: there are not. With vhost and memif, each end of a link is a device of
// its node's process. With kRing, all nodes share one process. With the others, one port of a node reaches all nodes.
std::string links_fault(const RunSettings& plan) {
  if (plan.has_namespaces() || plan.link == RunSettings::Link::kUdp) return {};
  const bool one_process = plan.link == RunSettings::Link::kRing;
  size_t ends = 0;
  for (unsigned node = 0; node < plan.nodes; ++node) {
    const size_t links = links_of(plan, node).size();
    ends += links;
    if (one_process || links <= kMaxLinks) continue;
    return fmt::format("node {} would have {} links; at most {}: use --link udp, where one socket reaches all nodes",
                       node, links, kMaxLinks);
  }
  if (!one_process || ends <= kMaxProcessPorts) return {};
  return fmt::format(
      "that makes {} ends of links in one process; at most {}: use --link vhost, which has a process "
      "per node",
      ends, kMaxProcessPorts);
}

// Returns whether sums with the codec of the job need direct. The library refuses them otherwise.
bool codec_needs_direct(const RunSettings& plan) {
  if (gl_begins_auto(plan.codec.c_str()) || plan.ranks() == 1) return false;
  const CodecRow& row = find_codec(plan.codec).row();
  return needs_owners(row) || needs_links(row);
}

void plan_default_strategies(RunSettings& plan) {
  const std::vector<StrategyId> ring = plan.strategies;
  plan.strategies.push_back({.kind = StrategyId::Kind::kDirect});
  if (plan.nodes <= kMostDirect && links_fault(plan).empty()) return;
  plan.strategies = ring;
  if (!codec_needs_direct(plan)) return;
  throw SetupError(fmt::format(
      "-n {} --link {} --codec {}: this codec needs strategy direct, which is allowed by default only up to {}; {}",
      plan.nodes, plan.link_name, plan.codec,
      plan.link == RunSettings::Link::kRing ? "6 nodes of this link" : fmt::format("{} nodes", kMostDirect),
      plan.nodes <= kMostDirect ? "use --link vhost" : "add --strategies ring,direct --link udp"));
}

}  // namespace

void plan_strategies(const RunOptions& options, RunSettings& plan) {
  const std::string what = "--strategies " + options.strategies;
  const bool given = !options.strategies.empty();
  if (plan.link == RunSettings::Link::kAccelerator) {
    if (given) throw SetupError(fmt::format("{}: with --link accelerator there are no operations", what));
    return;
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
  if (const std::string fault = links_fault(plan); !fault.empty()) {
    throw SetupError(fmt::format("-n {} --link {}{}: {}", plan.nodes, plan.link_name, given ? " " + what : "", fault));
  }
  if (!given) plan_default_strategies(plan);
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
