// report.cc - output of `gradlane sim`: a table, or JSON
#include "tools/sim/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "collectives/wire.h"

namespace gradlane {
namespace {

// Returns three digits: 4.56, 45.6, 456.
std::string digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  return value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string time_text(double seconds) {
  if (seconds < 999.5e-6) return digits(seconds * 1e6) + " us";
  return seconds < 0.9995 ? digits(seconds * 1e3) + " ms" : digits(seconds) + " s";
}

std::string size_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  const std::string number = bytes == std::floor(bytes) ? fmt::format("{:.0f}", bytes) : digits(bytes);
  return number + " " + units[unit];
}

std::string faults_text(const Faults& faults) {
  std::string text;
  const auto add = [&text](const char* what, double share) {
    if (share > 0) text += fmt::format(", {} {:g}%", what, 100 * share);
  };
  add("loss", faults.loss);
  add("duplicates", faults.duplicate);
  add("reordered", faults.reorder);
  add("corrupted", faults.corrupt);
  return text;
}

bool has_aggregator(const SimSettings& plan) {
  return std::ranges::any_of(plan.strategies,
                             [](const StrategyId& each) { return each.kind == StrategyId::Kind::kAggregator; });
}

// Returns the first columns of a row: the number of nodes, the strategy if some were named, and the codec. If the
// tensor may be divided, the number of operations follows the nodes.
std::string row_name(const SimSettings& plan, std::string nodes, const std::string& strategy, const std::string& codec,
                     const std::string& together) {
  if (plan.together != std::vector<size_t>{1}) nodes += fmt::format(" {:>8}", together);
  if (!plan.names_strategies) return fmt::format("{:>5} {:<22}", nodes, codec);
  size_t strategy_width = 8;
  size_t codec_width = 5;
  for (const StrategyId& each : plan.strategies) strategy_width = std::max(strategy_width, each.name().view().size());
  for (const FlowModel& each : plan.plays) strategy_width = std::max(strategy_width, each.name().size() + 1);
  for (const CodecPair& each : plan.codecs) codec_width = std::max(codec_width, each.name().size());
  return fmt::format("{:>5} {:<{}} {:<{}}", nodes, strategy, strategy_width, codec, codec_width);
}

nlohmann::json or_null(const std::optional<double>& value) { return value ? nlohmann::json(*value) : nullptr; }

}  // namespace

double least_bytes(OpKind op, unsigned nodes, size_t bytes) {
  const double each = static_cast<double>(nodes - 1) * static_cast<double>(bytes);
  switch (op) {
    case OpKind::kAllReduce:
      return 2 * each;
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
    case OpKind::kBroadcast:
    case OpKind::kReduce:
    case OpKind::kAllToAll:
      return each;
    case OpKind::kGather:
    case OpKind::kScatter:
      return each / nodes;
    case OpKind::kBarrier:
      break;
  }
  return 0;
}

double bus_factor(OpKind op, unsigned nodes) {
  if (op == OpKind::kBroadcast || op == OpKind::kReduce) return 1;
  if (op == OpKind::kGather || op == OpKind::kScatter) return least_bytes(op, nodes, 1);
  return least_bytes(op, nodes, 1) / nodes;
}

double aggregator_seconds(const SimSettings& plan, unsigned nodes) {
  if (nodes < 2) return 0;  // nothing to exchange
  const double p = nodes;
  const double n = static_cast<double>(plan.bytes);
  const double alpha = static_cast<double>(plan.link.delay) / kSecond;
  const double beta = 8 / static_cast<double>(plan.link.bits_per_second);
  return (1 + std::log2(p)) * alpha + (p + std::log2(p)) * n * beta + (p - 1) * n * plan.gamma;
}

double star_seconds(const SimSettings& plan, unsigned nodes, bool stream) {
  const size_t room = plan.mtu - sizeof(LinkHeader) - sizeof(RunHeader);
  const size_t payload = room / kGranuleBytes * kGranuleBytes;
  const size_t packets = (plan.bytes + payload - 1) / payload;
  const size_t wire_bytes = plan.bytes + packets * (plan.mtu - room + plan.link.overhead_bytes);
  const double seconds = 8 * static_cast<double>(wire_bytes) / static_cast<double>(plan.link.bits_per_second);
  return (stream ? 1 : 2) * (nodes - 1) * seconds;
}

void print_sim_head(const SimSettings& plan, OpKind op) {
  const std::string tensor =
      op == OpKind::kBarrier ? "" : fmt::format(" of {} ({})", size_text(static_cast<double>(plan.bytes)), plan.data);
  const char* const network = plan.topology == SimTopology::kSwitch ? "a switch with ports of " : "";
  fmt::print("\n{}{} over {}{:g} Gb/s, RTT {}{}\n", op_name(op), tensor, network,
             static_cast<double>(plan.link.bits_per_second) / 1e9,
             time_text(2 * static_cast<double>(plan.link.delay) / kSecond), faults_text(plan.faults));
  fmt::print("{} {:>8} {:>8} {:>8} {:>9} {:>6} {:>8} {:>8} {}{:>9}{}\n",
             row_name(plan, "nodes", "strategy", "codec", "together"), "time", "goodput", "busbw", "wire", "ratio",
             "retrans", "WA", has_aggregator(plan) ? fmt::format("{:>8} ", "star") : "", "wrong",
             plan.hash ? fmt::format(" {:>16}", "hash") : "");
  std::fflush(stdout);
}

void print_sim_row(const SimSettings& plan, const SimRow& row) {
  const auto time_or_none = [](const std::optional<double>& seconds) { return seconds ? time_text(*seconds) : "-"; };
  const auto speed = [](double gbps) { return gbps > 0 ? digits(gbps) : "-"; };
  fmt::print("{} {:>8} {:>8} {:>8} {:>9} {:>6} {:>8} {:>8} {}{:>9}{}\n",
             row_name(plan, std::to_string(row.nodes), row.strategy + (row.played ? "*" : ""), row.codec,
                      std::to_string(row.together)),
             time_text(row.seconds), speed(row.goodput_gbps), speed(row.busbw_gbps),
             size_text(static_cast<double>(row.wire_bytes)), row.ratio ? digits(*row.ratio) : "-", row.retransmits,
             time_or_none(row.wa_seconds),
             has_aggregator(plan) ? fmt::format("{:>8} ", time_or_none(row.star_seconds)) : "",
             row.played ? "-" : std::to_string(row.wrong),
             plan.hash ? fmt::format(" {:>16}", row.hash ? fmt::format("{:016x}", *row.hash) : "-") : "");
  std::fflush(stdout);
}

std::string to_json(const SimSettings& plan, std::span<const SimRow> rows, std::span<const std::string> skipped) {
  nlohmann::json result = {{"rows", nlohmann::json::array()}, {"skipped", skipped}};
  for (const SimRow& row : rows) {
    result["rows"].push_back({{"op", op_name(row.op)},
                              {"nodes", row.nodes},
                              {"strategy", row.strategy},
                              {"switch", plan.topology == SimTopology::kSwitch},
                              {"played", row.played},
                              {"codec", row.codec},
                              {"data", plan.data},
                              {"bytes", row.bytes},
                              {"together", row.together},
                              {"seconds", row.seconds},
                              {"goodput_gbps", row.goodput_gbps},
                              {"busbw_gbps", row.busbw_gbps},
                              {"wire_bytes", row.wire_bytes},
                              {"packets", row.packets},
                              {"retransmits", row.retransmits},
                              {"queue_drops", row.queue_drops},
                              {"ratio", or_null(row.ratio)},
                              {"wa_seconds", or_null(row.wa_seconds)},
                              {"star_seconds", or_null(row.star_seconds)},
                              {"wrong", row.played ? nlohmann::json(nullptr) : nlohmann::json(row.wrong)},
                              {"hash", row.hash ? nlohmann::json(fmt::format("{:016x}", *row.hash)) : nullptr},
                              {"failure", row.failure}});
  }
  return result.dump(1);
}

}  // namespace gradlane
