// verdict.cc - what delays the ring, from a summary (pure function)
#include "tools/trace/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/trace/words.h"

namespace gradlane {
namespace {

constexpr double kLate = 0.25;   // share of an operation's time; a trainer that is late by less does not count as late
constexpr double kLater = 2;     // a late trainer must be late by this many times the delay of the others
constexpr double kFull = 0.1;    // share of the operations' time; a link that is full for less does not count as slow
constexpr double kFuller = 1.5;  // a slow link must be full this many times as long as the others
// share of the trace in encode, add and decode; a worker below it does not count as busy
constexpr double kBusyNode = 0.7;
constexpr double kAtLeast = 2e-4;  // seconds; a trainer that is late by less does not count as late

// The node with the greatest value, this value, and the lower median of the other nodes' values.
struct Outlier {
  const NodeSummary* node = nullptr;
  double most = 0;
  double others = 0;
};
template <class Value>
Outlier outlier(const TraceSummary& summary, Value value) {
  Outlier found;
  std::vector<double> others;
  for (const NodeSummary& node : summary.nodes) {
    if (node.operations == 0) continue;
    if (found.node == nullptr || value(node) > found.most) found = {&node, value(node), 0};
  }
  for (const NodeSummary& node : summary.nodes) {
    if (&node != found.node && node.operations != 0) others.push_back(value(node));
  }
  std::ranges::sort(others);
  if (!others.empty()) found.others = others[(others.size() - 1) / 2];
  return found;
}

double median_delay(const TraceSummary& summary, const LinkSummary& but) {
  std::vector<double> delays;
  for (const LinkSummary& link : summary.links) {
    if (&link != &but && link.delay > 0) delays.push_back(link.delay);
  }
  std::ranges::sort(delays);
  return delays.empty() ? 0 : delays[(delays.size() - 1) / 2];
}

std::string of_fault(const TraceSummary& summary) {
  for (const NodeSummary& node : summary.nodes) {
    if (!node.missing.empty()) return fmt::format("node {} does not answer any more: {}", node.node, node.missing);
  }
  const auto failed = outlier(summary, [](const NodeSummary& node) { return static_cast<double>(node.failed); });
  if (failed.most == 0) return "";
  return fmt::format("operations failed: {} on node {}; 'gradlane stats' and its log say why", failed.most,
                     failed.node->node);
}

std::string of_late(const TraceSummary& summary) {
  const auto late = outlier(summary, [](const NodeSummary& node) { return node.late; });
  if (late.node == nullptr || late.most / 1e9 < kAtLeast || late.most < kLater * late.others) return "";
  const auto took = outlier(summary, [](const NodeSummary& node) { return node.took; });
  if (late.most < kLate * took.most) return "";
  return fmt::format(
      "the trainer of {} is late: it submits operations {} after the first rank does; an operation takes {}",
      rank_text(late.node->latest_rank, summary.ranks_per_node), duration_text(late.most), duration_text(took.most));
}

// Names a trainer that the others of its node wait for. Needs local_reduce.
std::string of_local_reduce(const TraceSummary& summary) {
  const auto late = outlier(summary, [](const NodeSummary& node) { return node.awaited; });
  if (late.node == nullptr || late.most / 1e9 < kAtLeast || late.most < kLate * late.node->took ||
      late.most < kLater * late.node->awaited_second) {
    return "";
  }
  return fmt::format(
      "the trainer of rank {} is late: the other trainers of node {} wait {} for it per operation, of {}",
      late.node->awaited_rank, late.node->node, duration_text(late.most), duration_text(late.node->took));
}

std::string of_links(const TraceSummary& summary) {
  if (summary.links.empty()) return "";
  const LinkSummary& slow = summary.links.front();
  std::vector<double> others;
  for (const LinkSummary& link : summary.links) {
    if (&link != &slow && link.bytes > slow.bytes / 50) others.push_back(link.full);
  }
  const double rest = others.empty() ? 0 : others[others.size() / 2];  // fullest first: the lower median
  if (slow.full < kFull || slow.full < kFuller * rest) return "";
  // A single link is called "a full link", not "slowest": it may be full for another reason, such as late
  // acknowledgements.
  std::string text = fmt::format("{} link: {} -> {}: full in {:.0f} % of the operations' time there",
                                 others.empty() ? "a full" : "slowest", rank_text(slow.from, summary.ranks_per_node),
                                 rank_text(slow.to, summary.ranks_per_node), 100 * slow.full);
  const double usual = median_delay(summary, slow);
  if (slow.delay > 0 && usual > 0) {
    text +=
        fmt::format("; its packets take {}, those of other links {}", duration_text(slow.delay), duration_text(usual));
  }
  return text + ": check the cable, the switch port and the receiver's CPUs";
}

std::string of_workers(const TraceSummary& summary) {
  const auto busy = outlier(summary, [](const NodeSummary& node) { return node.cpu; });
  if (busy.node == nullptr || busy.most < kBusyNode) return "";
  return fmt::format(
      "the worker of node {} is busy with codecs for {:.0f} % of the time: use more lanes or a cheaper codec",
      busy.node->node, 100 * busy.most);
}

std::string of_nodes_here(const TraceSummary& summary, bool& held_up) {
  for (const auto look : {of_fault, of_late, of_local_reduce, of_links, of_workers}) {
    const std::string found = look(summary);
    held_up = !found.empty();
    if (held_up) return found;
  }
  const auto some = std::ranges::any_of(summary.nodes, [](const NodeSummary& node) { return node.operations != 0; });
  if (!some) return "no operations ran";
  const auto idle = outlier(summary, [](const NodeSummary& node) { return node.idle; });
  if (idle.others > 0.5) {
    return fmt::format("no node stands out: for {:.0f} % of the time, trainers have no operation in flight",
                       100 * idle.others);
  }
  return "no node stands out";
}

}  // namespace

std::string verdict_of(const TraceSummary& summary, bool& held_up) {
  const size_t here = summary.nodes.size();
  const std::string rest = here >= summary.nodes_of_ring
                               ? ""
                               : fmt::format("; of {} nodes {} {} here: run gradlane trace on the others, too",
                                             summary.nodes_of_ring, here, here == 1 ? "is" : "are");
  return of_nodes_here(summary, held_up) + rest;
}

}  // namespace gradlane
