// table.cc - a summary of a trace as lines of text, and as JSON (pure functions)
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/stats/parts.h"
#include "tools/trace/summary.h"
#include "tools/trace/words.h"

namespace gradlane {
namespace {

using nlohmann::json;

std::string share_text(double share) { return share == 0 ? "-" : fmt::format("{:.0f}", 100 * share); }
std::string millis(double nanos) { return nanos == 0 ? "-" : digits(nanos / 1e6); }
size_t index(TraceCause cause) { return static_cast<size_t>(cause); }

// Formats the share of a cause and the rank that it was for: "58 of 2".
std::string whom(const NodeSummary& node, TraceCause cause) {
  const double share = node.waited[index(cause)];
  return share < 0.005 ? "-" : fmt::format("{:.0f} of {}", 100 * share, node.for_whom[index(cause)]);
}

Lines node_table(const TraceSummary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"node", "ops", "ms each", "late ms", "queued", "start", "link", "packets", "work", "look", "CPU %", "idle %"}};
  for (const NodeSummary& it : summary.nodes) {
    const double work = it.waited[index(TraceCause::kWork)];
    rows.push_back({fmt::format("{}", it.node), count_text(static_cast<double>(it.operations)), millis(it.took),
                    millis(it.late), share_text(it.queued + it.waited[index(TraceCause::kRing)]),
                    whom(it, TraceCause::kStart), whom(it, TraceCause::kLink), whom(it, TraceCause::kPackets),
                    share_text(work), share_text(it.waited[index(TraceCause::kScan)]), share_text(it.cpu),
                    share_text(it.idle)});
  }
  return table(rows);
}

Lines codec_table(const TraceSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"node", "encode us", "add us", "decode us"}};
  for (const NodeSummary& it : summary.nodes) {
    rows.push_back(
        {fmt::format("{}", it.node), digits(it.encode / 1e3), digits(it.add / 1e3), digits(it.decode / 1e3)});
  }
  return table(rows);
}

Lines link_table(const TraceSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"link", "full %", "MiB", "delay ms", "lost of"}};
  for (const LinkSummary& it : summary.links) {
    rows.push_back({fmt::format("{} -> {}", it.from, it.to), share_text(it.full),
                    digits(static_cast<double>(it.bytes) / (1 << 20)), millis(it.delay),
                    fmt::format("{} of {}", it.lost, it.packets)});
  }
  return table(rows);
}

}  // namespace

Lines summary_lines(const TraceSummary& summary) {
  Lines lines = {summary.verdict, ""};
  append(lines, node_table(summary));
  lines.emplace_back("");
  append(lines, codec_table(summary));
  if (!summary.links.empty()) {
    lines.emplace_back("");
    append(lines, link_table(summary));
  }
  lines.emplace_back("");
  lines.push_back(fmt::format("{} of operations; times of two nodes can be compared to within {}",
                              duration_text(summary.seconds * 1e9), duration_text(std::ceil(summary.clock_error))));
  uint64_t skipped = 0;
  for (const NodeSummary& it : summary.nodes) skipped += it.skipped;
  if (skipped != 0)
    lines.push_back(fmt::format("{} more operations were left out: there were too many for a file", skipped));
  if (summary.dropped != 0) lines.push_back(fmt::format("{} records were lost: they came too fast", summary.dropped));
  return lines;
}

json summary_json(const TraceSummary& summary) {
  json document = {
      {"seconds", summary.seconds}, {"clock_error_us", summary.clock_error / 1e3}, {"verdict", summary.verdict},
      {"held_up", summary.held_up}, {"records_dropped", summary.dropped},          {"nodes", json::array()},
      {"links", json::array()}};
  for (const NodeSummary& it : summary.nodes) {
    json node = {
        {"node", it.node},        {"operations", it.operations},  {"failed", it.failed},
        {"left_out", it.skipped}, {"took_us", it.took / 1e3},     {"late_us", it.late / 1e3},
        {"queued", it.queued},    {"encode_us", it.encode / 1e3}, {"add_us", it.add / 1e3},
        {"cpu", it.cpu},          {"decode_us", it.decode / 1e3}, {"idle", it.idle},
        {"missing", it.missing},  {"waits", json::object()},      {"waits_for", json::object()},
    };
    if (it.late > 0) node["latest_rank"] = it.latest_rank;
    if (it.awaited > 0) {
      node["awaited_us"] = it.awaited / 1e3;
      node["awaited_rank"] = it.awaited_rank;
    }
    for (size_t cause = 0; cause < kTraceCauses; ++cause) {
      const char* const name = cause_name(static_cast<TraceCause>(cause));
      node["waits"][name] = it.waited[cause];
      if (it.waited[cause] > 0) node["waits_for"][name] = it.for_whom[cause];
    }
    document["nodes"].push_back(std::move(node));
  }
  for (const LinkSummary& it : summary.links) {
    document["links"].push_back({{"from", it.from},
                                 {"to", it.to},
                                 {"full", it.full},
                                 {"bytes", it.bytes},
                                 {"packets", it.packets},
                                 {"lost", it.lost},
                                 {"delay_us", it.delay > 0 ? json(it.delay / 1e3) : json(nullptr)}});
  }
  return document;
}

}  // namespace gradlane
