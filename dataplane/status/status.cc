// status.cc - a node's figures as JSON and as lines of the log (pure functions)
#include "dataplane/status/status.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gradlane {
namespace {

using nlohmann::json;

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

template <class Value>
json value_or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

json faults_json(const InjectedFaults& faults) {
  if (!faults.any()) return nullptr;
  return {{"drop", faults.drop},       {"duplicate", faults.duplicate},
          {"reorder", faults.reorder}, {"corrupt", faults.corrupt},
          {"delay", faults.delay},     {"delay_time_us", static_cast<double>(faults.delay_time) / kMicrosecond},
          {"seed", faults.seed}};
}

json counters_json(const CounterValues& values) {
  json counters = json::object();
  for (const CounterValue& each : values) counters[each.name] = each.value;
  return counters;
}

json ports_json(const NodeFigures& node) {
  json ports = json::array();
  for (const PortFigures& port : node.ports) {
    json queues = json::array();
    for (const CounterValues& counters : port.queues) {
      queues.push_back({{"queue", queues.size()}, {"counters", counters_json(counters)}});
    }
    ports.push_back({{"name", port.name},
                     {"device", port.device},
                     {"driver", text_or_null(port.driver)},
                     {"link", port.link},
                     {"speed_mbps", port.speed_mbps == 0 ? json(nullptr) : json(port.speed_mbps)},
                     {"checksums", text_or_null(port.checksums)},
                     {"mac", port.mac},
                     {"address", port.address},
                     {"rival", text_or_null(port.rival)},
                     {"steering", port.steering},
                     {"queues", std::move(queues)}});
  }
  return ports;
}

json pools_json(const NodeFigures& node) {
  json pools = json::array();
  for (const PoolFigures& pool : node.pools) {
    pools.push_back({{"lane", pools.size()}, {"buffers", pool.buffers}, {"free", pool.free}});
  }
  return pools;
}

json neighbours_json(const NodeFigures& node) {
  json neighbours = json::array();
  for (const NeighbourFigures& it : node.neighbours) {
    neighbours.push_back({{"node", it.node},
                          {"ip", it.ip},
                          {"port", it.port},
                          {"mac", text_or_null(it.mac)},
                          {"state", it.up ? "up" : "missing"},
                          {"why", it.why},
                          {"trouble", it.trouble},
                          {"speaks_from", it.speaks_from},
                          {"path_mtu", it.path_bytes == 0 ? json() : json(it.path_bytes)},
                          {"difference", it.difference},
                          {"arp_tries", it.arp_tries},
                          {"forged", it.forged},
                          {"untagged", it.untagged},
                          {"tagged", it.tagged},
                          {"wrong_tos", it.wrong_tos}});
  }
  return neighbours;
}

json table_json(const NodeFigures& node) {
  json table = json::array();
  for (const TableFigures& it : node.table) {
    table.push_back({{"node", it.node}, {"address", it.address}, {"reach", text_or_null(it.reach)}});
  }
  return table;
}

json workers_json(const NodeFigures& node) {
  json workers = json::array();
  for (const WorkerFigures& it : node.workers) workers.push_back({{"busy_us", it.busy_us}});
  return workers;
}

json awaited_json(const NodeFigures& node) {
  json awaited = json::array();
  for (const TrainerFigures& it : node.awaited) awaited.push_back({{"rank", it.rank}, {"awaited_us", it.awaited_us}});
  return awaited;
}

json links_json(const RankFigures& rank) {
  json links = json::array();
  for (const LinkFigures& link : rank.links) {
    links.push_back({{"rank", link.rank},
                     {"up", link.up},
                     {"rtt_us", link.rtt_us},
                     {"window", link.window},
                     {"in_flight", link.in_flight},
                     {"sent", link.sent},
                     {"resent", link.resent},
                     {"bytes", link.bytes},
                     {"full_us", link.full_us},
                     {"full_bytes", link.full_bytes}});
  }
  return links;
}

json codecs_json(const RankFigures& rank) {
  json codecs = json::array();
  for (const CodecFigures& it : rank.codecs) {
    codecs.push_back({{"codec", it.word}, {"element_bytes", it.element_bytes}, {"run_bytes", it.run_bytes}});
  }
  return codecs;
}

json ranks_json(const NodeFigures& node) {
  json ranks = json::array();
  for (const RankFigures& rank : node.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"lane", rank.lane},
                     {"ring", rank.ring},
                     {"missing", value_or_null(rank.missing)},
                     {"refused", rank.refused},
                     {"failed", rank.failed},
                     {"links", links_json(rank)},
                     {"counters", counters_json(rank.counters)},
                     {"codecs", codecs_json(rank)}});
  }
  return ranks;
}

json plan_json(const NodeFigures& node) {
  json plan = json::array();
  for (const PlanFigures& it : node.plan) {
    plan.push_back({{"rank", it.rank},
                    {"operation", it.operation},
                    {"type", it.type},
                    {"from", it.from},
                    {"to", it.to},
                    {"asked", it.asked},
                    {"codec", it.codec},
                    {"strategy", it.strategy},
                    {"exact", it.exact},
                    {"settled", it.settled},
                    {"frozen", it.frozen},
                    {"why", it.why},
                    {"operations", it.operations},
                    {"bytes", it.bytes},
                    {"sent_bytes", it.sent_bytes},
                    {"predicted", it.predicted},
                    {"measured", it.measured},
                    {"baseline", it.baseline},
                    {"rival", it.rival},
                    {"rival_measured", it.rival_measured},
                    {"saved_ms", it.saved_ms},
                    {"changes", it.changes}});
  }
  return plan;
}

std::string counters_text(const CounterValues& counters) {
  std::string text;
  for (const CounterValue& each : counters) {
    if (each.value != 0) text += fmt::format(" {} {}", each.name, each.value);
  }
  return text;
}

}  // namespace

json status_json(const NodeFigures& node, const ProcessFigures& process) {
  return {{"node", node.node},
          {"nodes", node.nodes},
          {"version", process.version},
          {"uptime_s", process.uptime_s},
          {"pid", process.pid},
          {"rss_kb", process.rss_kb},
          {"config_digest", node.config_digest},
          {"codec", node.codec},
          {"strategies", node.strategies},
          {"mtu", node.mtu},
          {"lanes", node.lanes},
          {"trainers", node.trainers},
          {"attached", node.attached},
          {"in_flight", node.in_flight},
          {"failed_s_ago", value_or_null(node.failed_s_ago)},
          {"auth", node.auth},
          {"security", node.security},
          {"faults", faults_json(node.faults)},
          {"ports", ports_json(node)},
          {"pools", pools_json(node)},
          {"neighbours", neighbours_json(node)},
          {"table", table_json(node)},
          {"metrics", text_or_null(node.metrics)},
          {"workers", workers_json(node)},
          {"awaited", awaited_json(node)},
          {"ranks", ranks_json(node)},
          {"plan", plan_json(node)}};
}

std::vector<std::string> counter_lines(const NodeFigures& node) {
  std::vector<std::string> lines;
  for (const PortFigures& port : node.ports) {
    for (size_t i = 0; i < port.queues.size(); ++i) {
      lines.push_back(fmt::format("port {} queue {}:{}", port.name, i, counters_text(port.queues[i])));
    }
  }
  for (const RankFigures& rank : node.ranks) {
    lines.push_back(fmt::format("rank {} lane {}:{}", rank.rank, rank.lane, counters_text(rank.counters)));
  }
  return lines;
}

}  // namespace gradlane
