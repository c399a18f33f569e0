// figures.cc - rates of one daemon and of its links, from two of its documents (pure functions)
#include "tools/top/figures.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tools/stats/parts.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr double kOftenFull = 0.05;  // share of the time; a link that was full for less has no `full_rate`
constexpr double kLateShare = 0.25;  // share of the time; a trainer is late only if its node waits that long for it
constexpr double kLateRatio = 2;     // and if the node waits this many times as long as for any other trainer

bool has_rates(const TopLooks& looks) { return !looks.before.is_null() && looks.seconds > 0 && looks.gone.empty(); }

// Sums a counter over ranks and lanes (over_ranks), or over ports and queues (over_ports).
double over_ranks(const json& document, const char* name) {
  double sum = 0;
  for (const json& rank : at(document, "ranks")) sum += number(at(at(rank, "counters"), name));
  return sum;
}

double over_ports(const json& document, const char* name) {
  double sum = 0;
  for (const json& port : at(document, "ports")) {
    for (const json& queue : at(port, "queues")) sum += number(at(at(queue, "counters"), name));
  }
  return sum;
}

// Returns, for each rank, the share of the time in which operations were under way, on the lane where it is greatest.
std::map<unsigned, double> under_way_by_rank(const TopLooks& looks) {
  std::map<unsigned, double> shares;
  const json& ranks = at(looks.now, "ranks");
  for (size_t i = 0; element(&ranks, i) != nullptr; ++i) {
    const json& now = at(at(ranks[i], "counters"), "exchange_ns");
    const json* const before = member(member(element(&at(looks.before, "ranks"), i), "counters"), "exchange_ns");
    if (!now.is_number() || before == nullptr) continue;
    double& most = shares[whole(at(ranks[i], "rank"))];
    most = std::clamp((number(now) - number(*before)) / 1e9 / looks.seconds, most, 1.0);
  }
  return shares;
}

// Returns, for each trainer, the share of the time in which its node waits for it.
std::map<unsigned, double> awaited_by_rank(const TopLooks& looks) {
  std::map<unsigned, double> shares;
  const json& awaited = at(looks.now, "awaited");
  for (size_t i = 0; element(&awaited, i) != nullptr; ++i) {
    const json* const before = member(element(&at(looks.before, "awaited"), i), "awaited_us");
    if (before == nullptr) continue;
    shares[whole(at(awaited[i], "rank"))] =
        (number(at(awaited[i], "awaited_us")) - number(*before)) / 1e6 / looks.seconds;
  }
  return shares;
}

// Returns the trainer that the others of its node wait for. If each trainer is a rank of the ring, that is the one
// whose operations are under way for the shortest time.
std::optional<unsigned> late_rank_of(const TopLooks& looks) {
  std::map<unsigned, double> awaited = awaited_by_rank(looks);
  if (awaited.empty()) {
    const std::map<unsigned, double> shares = under_way_by_rank(looks);
    double most = 0;
    for (const auto& [rank, share] : shares) most = std::max(most, share);
    for (const auto& [rank, share] : shares) awaited[rank] = most - share;
  }
  if (awaited.size() < 2) return std::nullopt;
  std::vector<std::pair<double, unsigned>> order;
  for (const auto& [rank, share] : awaited) order.emplace_back(share, rank);
  std::ranges::sort(order, std::greater{});
  if (order[0].first < kLateShare || order[0].first < kLateRatio * order[1].first) return std::nullopt;
  return order[0].second;
}

double busiest(const TopLooks& looks) {
  double most = 0;
  const json& workers = at(looks.now, "workers");
  for (size_t i = 0; element(&workers, i) != nullptr; ++i) {
    const json* const before = element(&at(looks.before, "workers"), i);
    if (before == nullptr) continue;
    most = std::max(most, number(at(workers[i], "busy_us")) - number(at(*before, "busy_us")));
  }
  return std::clamp(most / 1e6 / looks.seconds, 0.0, 1.0);
}

// Returns the worst state of the ring among all ranks and lanes.
std::string ring_state(const json& document) {
  std::string worst;
  for (const char* const state : {"refused", "incomplete", "unknown", "whole"}) {
    for (const json& rank : at(document, "ranks")) {
      if (worst.empty() && at(rank, "ring") == state) worst = state;
    }
  }
  return worst.empty() ? "unknown" : worst;
}

// Returns the number of ranks per node. All nodes have as many ranks as this one.
unsigned ranks_per_node(const json& document) {
  std::set<double> ranks;
  for (const json& rank : at(document, "ranks")) ranks.insert(number(at(rank, "rank")));
  return std::max(1U, static_cast<unsigned>(ranks.size()));
}

// Returns the same link of the same rank and lane in the document before; null if it is not there.
const json& before_of(const TopLooks& looks, size_t rank, size_t link) {
  static const json nothing;
  const json* const it = element(member(element(&at(looks.before, "ranks"), rank), "links"), link);
  return it == nullptr ? nothing : *it;
}

void add_link(TopLink& sum, const json& now, const json& before, double seconds) {
  const auto rate = [&](const char* name) {
    return before.is_null() ? 0 : std::max(number(at(now, name)) - number(at(before, name)), 0.0) / seconds;
  };
  const double full = std::min(rate("full_us") / 1e6, 1.0);
  sum.up = sum.up && at(now, "up") == true;
  sum.full = std::max(sum.full, full);
  sum.rate += rate("bytes");
  sum.full_rate += rate("full_bytes");
  sum.rtt = std::max(sum.rtt, number(at(now, "rtt_us")) / 1e6);
  sum.window += number(at(now, "window"));
  sum.in_flight += number(at(now, "in_flight"));
  sum.packets += rate("sent");
  sum.resent += rate("resent");
}

}  // namespace

TopNode figures_of(const TopLooks& looks) {
  TopNode node;
  node.node = whole(at(looks.now, "node"));
  node.state = looks.gone.empty() ? ring_state(looks.now) : "gone";
  node.up = std::max(number(at(looks.now, "uptime_s")), 0.0);
  node.attached = number(at(looks.now, "attached"));
  node.failed = over_ranks(looks.now, "operations_failed");
  if (!looks.gone.empty()) return node;
  node.in_flight = number(at(looks.now, "in_flight"));
  node.exchanging = looks.exchanging;
  if (!has_rates(looks)) return node;
  // `shares` is empty if the daemon is older and does not send `exchange_ns`.
  const auto shares = under_way_by_rank(looks);
  const auto most = std::ranges::max_element(shares, {}, [](const auto& it) { return it.second; });
  if (most != shares.end()) node.exchanging = most->second;
  node.late_rank = late_rank_of(looks);
  const auto ranks = [&](const char* name) {
    return std::max(over_ranks(looks.now, name) - over_ranks(looks.before, name), 0.0) / looks.seconds;
  };
  const auto ports = [&](const char* name) {
    return std::max(over_ports(looks.now, name) - over_ports(looks.before, name), 0.0) / looks.seconds;
  };
  node.done = ranks("operations_done");
  node.out = ports("sent_bytes");
  node.in = ports("received_bytes");
  node.busy = busiest(looks);
  if (const double sent = ranks("run_bytes"); sent > 0) node.ratio = ranks("element_bytes") / sent;
  // While its window is full, the link is the bottleneck. Uncompressed, its data would take `node.ratio` times as long.
  double full = 0;
  for (const TopLink& link : links_of(looks)) full = std::max(full, link.full);
  if (node.ratio > 1) node.saved = full * (node.ratio - 1);
  return node;
}

std::vector<TopLink> links_of(const TopLooks& looks) {
  const unsigned own = whole(at(looks.now, "node"));
  const unsigned nodes = whole(at(looks.now, "nodes"));
  const unsigned per_node = ranks_per_node(looks.now);
  std::map<unsigned, TopLink> links;
  const json& ranks = at(looks.now, "ranks");
  for (size_t i = 0; element(&ranks, i) != nullptr; ++i) {
    const json& of_rank = at(ranks[i], "links");
    for (size_t k = 0; element(&of_rank, k) != nullptr; ++k) {
      const unsigned to = whole(at(of_rank[k], "rank")) / per_node;
      if (to == own || to >= nodes) continue;
      TopLink& sum = links.try_emplace(to, TopLink{.from = own, .to = to}).first->second;
      add_link(sum, of_rank[k], has_rates(looks) ? before_of(looks, i, k) : json(), looks.seconds);
    }
  }
  std::vector<TopLink> result;
  for (auto& [to, link] : links) {
    link.full_rate = link.full >= kOftenFull ? link.full_rate / link.full : 0;
    result.push_back(link);
  }
  return result;
}

}  // namespace gradlane
