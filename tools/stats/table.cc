// table.cc - the daemon's document as text (no I/O)
#include "tools/stats/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataplane/accelerator/commands/stats.h"
#include "dataplane/status/savings.h"
#include "tools/stats/parts.h"
#include "tools/stats/plan_table.h"
#include "tools/stats/stats.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr double kFailing = 60;        // seconds; operations that failed longer ago do not count
constexpr size_t kMostNeighbours = 8;  // most neighbours that have a line each, without --all
constexpr size_t kMostLinks = 4;       // most links that have a figure each

// ---- Sums over counters

double over_queues(const json* port, const char* name) {
  const json* const queues = member(port, "queues");
  double sum = 0;
  for (size_t i = 0; element(queues, i) != nullptr; ++i) sum += counter(member(element(queues, i), "counters"), name);
  return sum;
}

double dropped(const json* port) {
  static constexpr const char* kDrops[] = {
      "segmented", "not_neighbour", "stranger",     "forged",  "wrong_tos",     "wrong_lane",
      "no_mac",    "no_address",    "link_down",    "runt",    "bad_ip_header", "ip_options",
      "fragment",  "bad_udp",       "bad_checksum", "bad_arp", "injected_drop", "probe_refused"};
  double sum = 0;
  for (const char* const name : kDrops) sum += over_queues(port, name);
  return sum;
}

// ---- Parts of the page

// Returns the names of all strategies; "" if the ring is the only one.
std::string strategies_text(const json& strategies) {
  if (!strategies.is_array() || strategies == json::array({"ring"})) return "";
  std::string names;
  for (const json& it : strategies) names += (names.empty() ? "" : ", ") + text(it);
  return "   strategies " + names;
}

Lines node_lines(const json& now) {
  std::string flags;
  if (const json& security = at(now, "security"); security.is_string() && security != "none") {
    flags += "   packets " + text(security);
  }
  if (const json& faults = at(now, "faults"); !faults.is_null()) flags += "   FAULTS INJECTED: " + faults.dump();
  const auto plural = [](const json& count, const char* what) {
    return fmt::format("{} {}{}", text(count), what, number(count) == 1 ? "" : "s");
  };
  Lines lines{fmt::format("node {} of {}   up {}   gradlane {}   pid {}   {:.1f} MiB", text(at(now, "node")),
                          text(at(now, "nodes")), time_text(number(at(now, "uptime_s"))), text(at(now, "version")),
                          text(at(now, "pid")), number(at(now, "rss_kb")) / 1024),
              fmt::format("codec {}{}   MTU {}   {}   {} of {} attached   {} in flight{}", text(at(now, "codec")),
                          strategies_text(at(now, "strategies")), text(at(now, "mtu")),
                          plural(at(now, "lanes"), "lane"), text(at(now, "attached")),
                          plural(at(now, "trainers"), "trainer"), plural(at(now, "in_flight"), "operation"), flags)};
  std::string pools;
  for (const json& pool : at(now, "pools")) {
    pools += fmt::format("   {} of {}", text(at(pool, "free")), text(at(pool, "buffers")));
  }
  if (!pools.empty()) lines.push_back("free packet buffers" + pools);
  return lines;
}

Lines lines_of_ports(const StatsLooks& looks) {
  const json& ports = at(looks.now, "ports");
  if (!ports.is_array() || ports.empty()) return {};
  const json* const ports_before = member(looks.before, "ports");
  std::vector<std::vector<std::string>> rows;
  rows.push_back(
      looks.rates()
          ? std::vector<std::string>{"port", "link", "rx Gb/s", "tx Gb/s", "rx frames/s", "tx frames/s", "dropped/s"}
          : std::vector<std::string>{"port", "link", "rx bytes", "tx bytes", "rx frames", "tx frames", "dropped"});
  for (size_t i = 0; i < ports.size(); ++i) {
    const json* const port = &ports[i];
    const json* const before = element(ports_before, i);
    const bool rates = looks.rates() && before != nullptr;
    const auto figure = [&](const char* name) {
      const double total = over_queues(port, name);
      return rates ? std::max(total - over_queues(before, name), 0.0) / looks.seconds : total;
    };
    const auto bytes = [&](const char* name) {
      return rates ? digits(figure(name) * 8 / 1e9) : count_text(figure(name));
    };
    const double drops = rates ? std::max(dropped(port) - dropped(before), 0.0) / looks.seconds : dropped(port);
    rows.push_back({text(at(*port, "name")), text(at(*port, "link")), bytes("received_bytes"), bytes("sent_bytes"),
                    count_text(figure("received")), count_text(figure("sent")), count_text(drops)});
  }
  return table(rows);
}

// Returns whether a neighbour is up and there is nothing else to report about it.
bool is_plain(const json& neighbour) {
  return at(neighbour, "state") == "up" && text(at(neighbour, "why")).empty() && text(at(neighbour, "trouble")).empty();
}

Lines neighbour_lines(const json& now, bool all) {
  json neighbours = at(now, "neighbours");
  if (!neighbours.is_array() || neighbours.empty()) return {};
  size_t left_out = 0;
  if (!all && neighbours.size() > kMostNeighbours) {
    json worth_it = json::array();
    for (const json& it : neighbours) {
      if (worth_it.size() < kMostNeighbours && !is_plain(it)) worth_it.push_back(it);
    }
    left_out = neighbours.size() - worth_it.size();
    neighbours = std::move(worth_it);
  }
  std::vector<std::vector<std::string>> rows = {{"neighbour", "address", "port", "MAC", "state"}};
  for (const json& it : neighbours) {
    rows.push_back({fmt::format("node {}", text(at(it, "node"))), text(at(it, "ip")), text(at(it, "port")),
                    text(at(it, "mac")), text(at(it, "state"))});
  }
  const Lines formatted = table(rows);
  Lines lines{formatted.front()};
  for (size_t i = 0; i < neighbours.size(); ++i) {
    lines.push_back(formatted[i + 1]);
    const json& why = at(neighbours[i], "why");
    if (why.is_string() && why != "") lines.push_back("  " + why.get<std::string>());
    const json& trouble = at(neighbours[i], "trouble");
    if (trouble.is_string() && trouble != "" && trouble != why) lines.push_back("  " + trouble.get<std::string>());
  }
  if (left_out != 0) {
    const json& whole = at(now, "neighbours");
    const auto missing = std::ranges::count_if(whole, [](const json& it) { return at(it, "state") != "up"; });
    lines.push_back(fmt::format("{} more (--all); {} of {} neighbours are up", left_out,
                                static_cast<ptrdiff_t>(whole.size()) - missing, whole.size()));
  }
  return lines;
}

std::string ring_text(const json& rank) {
  std::string ring = text(at(rank, "ring"));
  if (const json& missing = at(rank, "missing"); !missing.is_null()) ring += ", no rank " + text(missing);
  return ring;
}

// Returns the figure of one link as "12.3", of links to ranks 1 and 3 as "1:12.3 3:14.0", and of many links as
// "12.3..45.6".
std::string link_text(const json& rank, const char* key) {
  std::string result;
  const json& links = at(rank, "links");
  if (links.size() > kMostLinks) {
    std::vector<double> values;
    for (const json& link : links) {
      if (at(link, "up") == true) values.push_back(number(at(link, key)));
    }
    if (values.empty()) return "-";
    const auto [least, most] = std::ranges::minmax(values);
    return fmt::format("{}..{}", digits(least), digits(most));
  }
  for (const json& link : links) {
    if (links.size() > 1) result += fmt::format("{}{}:", result.empty() ? "" : " ", text(at(link, "rank")));
    result += at(link, "up") == true ? digits(number(at(link, key))) : "-";
  }
  return result.empty() ? "-" : result;
}

Lines rank_lines(const StatsLooks& looks) {
  const json& ranks = at(looks.now, "ranks");
  if (!ranks.is_array() || ranks.empty()) return {};
  const json* const ranks_before = member(looks.before, "ranks");
  const bool rates = looks.rates();
  std::vector<std::vector<std::string>> rows = {{"rank", "lane", "ring", "RTT us", "window", rates ? "done/s" : "done",
                                                 "failed", rates ? "packets/s" : "packets",
                                                 rates ? "resent/s" : "resent"}};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const json* const counters = member(&ranks[i], "counters");
    const json* const before = member(element(ranks_before, i), "counters");
    const auto figure = [&](std::initializer_list<const char*> names) {
      double sum = 0;
      for (const char* const name : names) sum += counter(counters, name) - (rates ? counter(before, name) : 0);
      return rates ? count_text(std::max(sum, 0.0) / looks.seconds) : count_text(sum);
    };
    rows.push_back({text(at(ranks[i], "rank")), text(at(ranks[i], "lane")), ring_text(ranks[i]),
                    link_text(ranks[i], "rtt_us"), link_text(ranks[i], "window"), figure({"operations_done"}),
                    count_text(counter(counters, "operations_failed")), figure({"data_sent"}),
                    figure({"retransmit_timeout", "retransmit_sack"})});
  }
  Lines lines = table(rows);
  for (const json& rank : ranks) {
    const json& refused = at(rank, "refused");
    if (refused.is_string() && refused != "") {
      lines.push_back(fmt::format("  refused by rank {}: {}", text(at(rank, "rank")), refused.get<std::string>()));
    }
    const json& failed = at(rank, "failed");
    if (failed.is_string() && failed != "") {
      lines.push_back(fmt::format("  the last operation of rank {} that failed: {}", text(at(rank, "rank")),
                                  failed.get<std::string>()));
    }
  }
  return lines;
}

// Returns the loss by lossy codecs: a line for each rank and lane that has used one. If there are rates, the lines
// cover the time between the two documents.
Lines loss_lines(const StatsLooks& looks) {
  Lines lines;
  const json& ranks = at(looks.now, "ranks");
  const json* const ranks_before = member(looks.before, "ranks");
  for (size_t i = 0; element(&ranks, i) != nullptr; ++i) {
    const json* const before = member(element(ranks_before, i), "counters");
    const auto figure = [&](const char* name) {
      return counter(member(&ranks[i], "counters"), name) - (looks.rates() ? counter(before, name) : 0);
    };
    const double sums = figure("lossy_operations");
    const double values = figure("lossy_values");
    if (sums <= 0 || values <= 0) continue;
    lines.push_back(fmt::format(
        "rank {}, lane {}: rounding made {:.1f} % of the values zero and took {:.1f} % of the norm ({} sum{})",
        text(at(ranks[i], "rank")), text(at(ranks[i], "lane")), 100 * figure("lossy_zeroed") / values,
        figure("lossy_norm_ppm") / sums / 1e4, count_text(sums), sums == 1 ? "" : "s"));
  }
  return lines;
}

// Returns the lines on the benefit of compression for the latest job. They are totals, even if other lines are rates.
Lines savings_lines_of(const json& now) {
  Lines lines;
  for (const std::string& line : savings_lines(savings_from(at(now, "worth")))) {
    lines.push_back((lines.empty() ? "this job   " : "           ") + line);
  }
  return lines;
}

Lines counter_lines(const std::string& title, const json* counters, const json* before, const StatsLooks& looks) {
  Lines lines;
  if (counters == nullptr || !counters->is_object()) return lines;
  for (const auto& [name, value] : counters->items()) {
    std::string line = counter_line(name, value, before, looks, counter_text(name));
    if (!line.empty()) lines.push_back(std::move(line));
  }
  if (!lines.empty()) lines.insert(lines.begin(), title);
  return lines;
}

Lines all_counters(const StatsLooks& looks) {
  Lines lines;
  const json& ports = at(looks.now, "ports");
  for (size_t i = 0; element(&ports, i) != nullptr; ++i) {
    const json* const queues = member(&ports[i], "queues");
    const json* const before = member(element(member(looks.before, "ports"), i), "queues");
    for (size_t q = 0; element(queues, q) != nullptr; ++q) {
      append(lines,
             counter_lines(fmt::format("port {}, queue {}:", text(at(ports[i], "name")), q),
                           member(element(queues, q), "counters"), member(element(before, q), "counters"), looks));
    }
  }
  const json& ranks = at(looks.now, "ranks");
  for (size_t i = 0; element(&ranks, i) != nullptr; ++i) {
    append(lines,
           counter_lines(fmt::format("rank {}, lane {}:", text(at(ranks[i], "rank")), text(at(ranks[i], "lane"))),
                         member(&ranks[i], "counters"), member(element(member(looks.before, "ranks"), i), "counters"),
                         looks));
  }
  return lines;
}

}  // namespace

std::vector<std::string> stats_lines(const json& now, const json* before, double seconds, bool all) {
  const StatsLooks looks{now, before, seconds};
  if (at(now, "mode") == "accelerator") return accelerator_lines(looks, all);
  Lines lines = node_lines(now);
  for (const Lines& part : {lines_of_ports(looks), neighbour_lines(now, all), rank_lines(looks), loss_lines(looks),
                            savings_lines_of(now), all ? all_counters(looks) : Lines()}) {
    if (part.empty()) continue;
    lines.emplace_back();
    append(lines, part);
  }
  return lines;
}

// Accelerators have no ring and no operations. Their check is whether the kernel leaves their packets alone.
int stats_status(const nlohmann::json& document) {
  if (at(at(document, "kernel"), "kept_off") == false) return kStatsKernel;
  if (!at(document, "ranks").is_array()) return kStatsFine;
  if (!all_rings_whole(document)) return kStatsRing;
  const nlohmann::json& ago = at(document, "failed_s_ago");
  return ago.is_number() && ago.get<double>() < kFailing ? kStatsFailing : kStatsFine;
}

}  // namespace gradlane
