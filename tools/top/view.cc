// view.cc - a view of the ring from daemons' documents: the slowest link, which node waits for which (pure functions)
#include "tools/top/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tools/stats/parts.h"
#include "tools/top/figures.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr double kLeastFull = 0.05;  // share of the time; a link that is full for less delays nobody
constexpr double kCarries = 0.02;    // share of the busiest link's bytes; a link with less does not count
constexpr double kSlower = 1.5;      // a link is slow if it is full this many times as long as the others
constexpr double kExchanges = 0.1;   // share of the time; a node that has operations in flight for less is idle
// share of the time; a late node has operations in flight for less than the others by at least this
constexpr double kWaiting = 0.25;
constexpr double kHeldUp = 0.3;  // share of the time in exchanges; a link that is full for as long holds its node up
// share of packets that are sent again; from there on, loss explains why a link is slow
constexpr double kLossy = 0.002;
constexpr double kBusyWorker = 0.85;  // share of the time; a worker that is busy for as long is at its limit
constexpr size_t kLongestText = 200;
constexpr size_t kMostNamed = 8;   // most nodes that one line names
constexpr size_t kMostCauses = 3;  // most lines on nodes without figures, one for each cause

// ---- Links

// Returns the lower median of `full` of the other links. In a ring of four in which both links of one node are slow, it
// is the value of a fast link.
double usual_full(const std::vector<TopLink>& links, size_t but) {
  std::vector<double> others;
  for (size_t i = 0; i < links.size(); ++i) {
    if (i != but && links[i].carries) others.push_back(links[i].full);
  }
  if (others.empty()) return 0;
  std::ranges::sort(others);
  return others[(others.size() - 1) / 2];
}

// Sorts links, the fullest first, and marks those that are slower than the others. The first one is then the slowest.
void mark(std::vector<TopLink>& links) {
  std::ranges::stable_sort(links, [](const TopLink& a, const TopLink& b) { return a.full > b.full; });
  double most = 0;
  for (const TopLink& it : links) most = std::max(most, it.rate);
  for (TopLink& it : links) it.carries = it.rate > kCarries * most || it.full >= kHeldUp;
  if (std::ranges::count(links, true, &TopLink::carries) < 2 || links.front().full < kLeastFull) return;
  for (size_t i = 0; i < links.size(); ++i) {
    if (links[i].full < kSlower * usual_full(links, i) || links[i].full * kSlower < links.front().full) return;
    links[i].mark = i == 0 ? TopLink::Mark::kSlowest : TopLink::Mark::kSlow;
  }
}

const TopNode* find(const std::vector<TopNode>& nodes, unsigned node) {
  const auto it = std::ranges::find(nodes, node, &TopNode::node);
  return it == nodes.end() ? nullptr : &*it;
}

std::string why_slow(const TopView& view, const TopLink& link) {
  // The packets were lost, or so late that they were sent again needlessly. The sender cannot tell which.
  if (link.lost() >= kLossy) {
    return fmt::format(
        "{:.1f} % of its packets are sent again because they are lost or late; check the cable, the switch port "
        "and the receiver's CPUs",
        100 * link.lost());
  }
  const TopNode* const to = find(view.nodes, link.to);
  if (to != nullptr && to->busy >= kBusyWorker) {
    return fmt::format("node {}'s worker is busy {:.0f} % of the time", link.to, 100 * to->busy);
  }
  return "check the cable, the switch port and the receiver's CPUs";
}

std::string slowest_text(const TopView& view) {
  const TopLink& first = view.links.front();
  std::string text =
      fmt::format("slowest link: node {} -> node {}: full {:.0f} % of the time, {} Mb/s then, RTT {} ms", first.from,
                  first.to, 100 * first.full, digits(first.full_rate * 8 / 1e6), digits(first.rtt * 1e3));
  return text + "; " + why_slow(view, first);
}

// Returns a hint that nodes that cannot be asked may have slow links; "" if all can be asked.
std::string unknown_text(const TopView& view) {
  const auto asked = std::ranges::count_if(view.nodes, [](const TopNode& it) { return it.state != "not asked"; });
  if (static_cast<size_t>(asked) >= view.size) return "";
  return fmt::format("of {} nodes {}: run gradlane top on the others, too", view.size,
                     asked == 1 ? "one answers" : fmt::format("{} answer", asked));
}

// Returns the verdict if links limit the ring, but none is known to be slower than the others.
std::string full_text(const TopView& view) {
  const TopLink& first = view.links.front();
  const std::string link = fmt::format("the link of node {} to node {} is full {:.0f} % of the time, {} Mb/s then",
                                       first.from, first.to, 100 * first.full, digits(first.full_rate * 8 / 1e6));
  const std::string unknown = unknown_text(view);
  if (!unknown.empty()) return link + "; " + unknown;
  const bool alone = std::ranges::count(view.links, true, &TopLink::carries) < 2;
  return link + (alone ? ", and no other link carries data" : ", and the other links are about as full");
}

// Returns a line that names the node to which all slow links belong: this node or its cable is the cause. Returns "" if
// there is no such node.
std::string common_text(const TopView& view) {
  std::vector<unsigned> common = {view.links.front().from, view.links.front().to};
  size_t slow = 0;
  for (const TopLink& link : view.links) {
    if (link.mark == TopLink::Mark::kNone) continue;
    ++slow;
    std::erase_if(common, [&link](unsigned node) { return node != link.from && node != link.to; });
  }
  if (slow < 2 || common.size() != 1) return "";
  return fmt::format("{} slow links belong to node {}: check its cable, its switch port and its CPUs", slow, common[0]);
}

// ---- Nodes

bool exchanges(const TopNode& node) { return node.exchanging >= kExchanges; }

// Returns whether trainers of this node are late. A late node has operations in flight for a shorter time than nodes
// that wait for it. If all nodes compute most of the time, all these times are short, and no node is late.
bool is_late(const TopView& view, const TopNode& node) {
  if (node.state != "whole" || node.attached == 0) return false;
  std::vector<double> others;
  for (const TopNode& it : view.nodes) {
    if (it.node != node.node && it.state == "whole") others.push_back(it.exchanging);
  }
  if (others.empty()) return false;
  std::ranges::sort(others);
  const double usual = others[others.size() / 2];
  return node.exchanging < usual - kWaiting && node.exchanging < usual / 2;
}

// Returns a node whose trainers are later than those of the other nodes; else a node with a late_rank; else null.
const TopNode* late_of(const TopView& view) {
  const auto late = std::ranges::find_if(view.nodes, [&view](const TopNode& it) { return is_late(view, it); });
  if (late != view.nodes.end()) return &*late;
  const auto some = std::ranges::find_if(view.nodes, [](const TopNode& it) { return it.late_rank.has_value(); });
  return some == view.nodes.end() ? nullptr : &*some;
}

std::string trainer_of(const TopNode& node) {
  if (!node.late_rank) return fmt::format("the trainer of node {}", node.node);
  return fmt::format("the trainer of rank {}, on node {},", *node.late_rank, node.node);
}

// Limits text of a daemon to kLongestText characters.
std::string short_text(const json& value) {
  if (value.is_structured()) return "-";
  std::string all = text(value);
  if (all.size() > kLongestText) all.resize(kLongestText);
  return all;
}

// Returns the first neighbour that this daemon misses, and why.
std::string missing_text(const json& document) {
  for (const json& it : at(document, "neighbours")) {
    if (at(it, "state") == "up") continue;
    const std::string why = short_text(at(it, "why"));
    return fmt::format("node {}{}", short_text(at(it, "node")), why.empty() || why == "-" ? "" : ": " + why);
  }
  return "nodes that are not its neighbours";
}

const TopLink* fullest_of(const TopView& view, unsigned node) {
  const auto it = std::ranges::find(view.links, node, &TopLink::from);
  return it == view.links.end() ? nullptr : &*it;
}

// Returns what the node waits for. Sets `is_slow` if that is its own trainer, worker or link.
std::string waits_of(const TopView& view, const TopNode& node, const json& document, bool& is_slow) {
  if (node.state != "whole") return missing_text(document);
  if (node.attached == 0) return "no trainer is here";
  is_slow = true;
  if (node.late_rank) return fmt::format("its own trainer of rank {}", *node.late_rank);
  if (!exchanges(node) || is_late(view, node)) return "its own trainer";
  const TopNode* const late = late_of(view);
  const TopLink* const link = fullest_of(view, node.node);
  if (link != nullptr && link->full >= kHeldUp * std::max(node.exchanging, kExchanges)) {
    return fmt::format("the link to node {}", link->to);
  }
  is_slow = node.busy >= kBusyWorker && late == nullptr;
  if (late != nullptr && late->late_rank) return fmt::format("the trainer of rank {}", *late->late_rank);
  if (late != nullptr) return trainer_of(*late);
  if (is_slow) return "its own worker";
  if (view.size < 2) return "";
  return fmt::format("packets of node {}", (node.node + view.size - 1) % view.size);
}

// Adds nodes of the ring that have not sent a document, as far as their neighbours know them. Sets the addresses of
// nodes that have sent one.
void add_neighbours(TopView& view, std::span<const TopLooks> looks) {
  for (const TopLooks& each : looks) {
    for (const json& it : at(each.now, "neighbours")) {
      const unsigned number = whole(at(it, "node"));
      if (number >= view.size) continue;
      const auto known = std::ranges::find(view.nodes, number, &TopNode::node);
      if (known != view.nodes.end()) {
        known->address = short_text(at(it, "ip"));
        continue;
      }
      TopNode& other = view.nodes.emplace_back();
      other.node = number;
      other.address = short_text(at(it, "ip"));
      other.state = at(it, "state") == "up" ? "not asked" : "missing";
      other.waits = "no socket here";
    }
  }
}

// Adds the reasons why nodes have not sent a document.
void add_others(TopView& view, std::span<const TopOther> others) {
  for (const TopOther& it : others) {
    auto known = std::ranges::find(view.nodes, it.node, &TopNode::node);
    if (known == view.nodes.end()) {
      known = view.nodes.insert(view.nodes.end(), TopNode{});
      known->node = it.node;
      known->state = "not asked";
      known->address = it.address;
    }
    known->waits = it.why;
  }
}

// Returns a line for each reason, with all nodes that have no figures for that reason.
std::vector<std::string> others_lines(std::span<const TopOther> others) {
  std::vector<std::string> lines;
  std::vector<bool> told(others.size());
  for (size_t i = 0; i < others.size(); ++i) {
    if (told[i]) continue;
    std::vector<std::string> nodes;
    for (size_t k = i; k < others.size(); ++k) {
      if (others[k].why != others[i].why) continue;
      told[k] = true;
      nodes.push_back(std::to_string(others[k].node));
    }
    const size_t count = nodes.size();
    nodes.resize(std::min(count, kMostNamed));
    const std::string more = count > kMostNamed ? fmt::format(" and {} more", count - kMostNamed) : "";
    const std::string place = count > 1 || others[i].place.empty() ? "" : " at " + others[i].place;
    lines.push_back(fmt::format("node{} {}{}: no figures{}: {}", count == 1 ? "" : "s", fmt::join(nodes, ", "), more,
                                place, others[i].why));
  }
  if (lines.size() > kMostCauses) {
    lines.resize(kMostCauses);
    lines.emplace_back("more nodes have no figures, for other reasons: see below");
  }
  return lines;
}

// Returns the node that explains why the ring is not ready; null if it is ready. A node that has gone comes first, as
// other nodes miss it.
const TopNode* worst_of(const TopView& view) {
  const auto gone = std::ranges::find(view.nodes, "gone", &TopNode::state);
  if (gone != view.nodes.end()) return &*gone;
  const auto it = std::ranges::find_if(
      view.nodes, [](const TopNode& node) { return node.state != "whole" && node.state != "not asked"; });
  return it == view.nodes.end() ? nullptr : &*it;
}

void judge(TopView& view) {
  if (const TopNode* const worst = worst_of(view)) {
    view.bad = true;
    view.verdict = fmt::format("the ring is not ready: node {} is {}", worst->node, worst->state);
    if (worst->state != "missing" && !worst->waits.empty()) {
      view.verdict += (worst->state == "gone" ? ": " : ", waits for ") + worst->waits;
    }
  } else if (!view.rates) {
    view.verdict = "the ring is ready";
  } else if (const TopNode* const late = late_of(view)) {
    view.verdict = trainer_of(*late) + " is late: the others wait for it";
    view.held_up = true;
  } else if (!view.links.empty() && view.links.front().mark == TopLink::Mark::kSlowest) {
    view.verdict = slowest_text(view);
    view.held_up = true;
    if (std::string common = common_text(view); !common.empty()) view.notes.push_back(std::move(common));
  } else if (!view.links.empty() && view.links.front().full >= kHeldUp) {
    view.verdict = "the ring is ready; " + full_text(view);
  } else if (std::ranges::any_of(view.nodes, [](const TopNode& node) { return node.done > 0 || exchanges(node); })) {
    view.verdict = "the ring is ready, and no link slows it down";
    if (const std::string unknown = unknown_text(view); !unknown.empty()) view.verdict += "; " + unknown;
  } else {
    view.verdict = "the ring is ready, and no operations run";
  }
}

const char* mark_name(TopLink::Mark mark) {
  return mark == TopLink::Mark::kSlowest ? "slowest" : mark == TopLink::Mark::kSlow ? "slow" : "";
}

}  // namespace

TopView top_view(std::span<const TopLooks> looks, std::span<const TopOther> others) {
  TopView view;
  for (const TopLooks& each : looks) {
    if (view.codec.empty()) {
      view.codec = text(at(each.now, "codec"));
      view.mtu = text(at(each.now, "mtu"));
      view.size = whole(at(each.now, "nodes"));
    }
    view.rates = view.rates || !each.before.is_null();
    view.nodes.push_back(figures_of(each));
    if (!each.gone.empty()) {
      view.nodes.back().waits = each.gone;
      continue;
    }
    for (const TopLink& link : links_of(each)) view.links.push_back(link);
  }
  add_neighbours(view, looks);
  add_others(view, others);
  std::ranges::sort(view.nodes, {}, &TopNode::node);
  mark(view.links);
  for (const TopLooks& each : looks) {
    const auto it = std::ranges::find(view.nodes, whole(at(each.now, "node")), &TopNode::node);
    if (each.gone.empty()) it->waits = waits_of(view, *it, each.now, it->is_slow);
  }
  judge(view);
  for (std::string& line : others_lines(others)) view.notes.push_back(std::move(line));
  return view;
}

json top_json(const TopView& view) {
  json nodes = json::array();
  for (const TopNode& it : view.nodes) {
    nodes.push_back({{"node", it.node},
                     {"state", it.state},
                     {"address", it.address},
                     {"exchanging", it.exchanging},
                     {"in_flight", it.in_flight},
                     {"attached", it.attached},
                     {"done_per_s", it.done},
                     {"failed", it.failed},
                     {"out_bytes_per_s", it.out},
                     {"in_bytes_per_s", it.in},
                     {"ratio", it.ratio > 0 ? json(it.ratio) : json()},
                     {"saved_s_per_s", it.saved},
                     {"busy", it.busy},
                     {"uptime_s", it.up},
                     {"late_rank", it.late_rank ? json(*it.late_rank) : json()},
                     {"waits_for", it.waits}});
  }
  json links = json::array();
  for (const TopLink& it : view.links) {
    links.push_back({{"from", it.from},
                     {"to", it.to},
                     {"up", it.up},
                     {"full", it.full},
                     {"bytes_per_s", it.rate},
                     {"full_bytes_per_s", it.full > 0 ? json(it.full_rate) : json()},
                     {"rtt_us", it.rtt * 1e6},
                     {"window", it.window},
                     {"in_flight", it.in_flight},
                     {"packets_per_s", it.packets},
                     {"resent_per_s", it.resent},
                     {"mark", mark_name(it.mark)}});
  }
  return {{"nodes_of_ring", view.size}, {"codec", view.codec}, {"verdict", view.verdict}, {"bad", view.bad},
          {"held_up", view.held_up},    {"notes", view.notes}, {"nodes", nodes},          {"links", links}};
}

}  // namespace gradlane
