// reference.cc - prints the tables of the code that docs/ has as reference, as JSON for dev/reference.py. Nobody
// installs it.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/counters.h"
#include "config/key_types.h"
#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/accelerator/engine/counters.h"
#include "dataplane/accelerator/engine/tcp_streams.h"
#include "dataplane/frame/frame.h"
#include "dataplane/lane/queue_counters.h"
#include "dataplane/status/metrics.h"
#include "tools/exit_status.h"

namespace gradlane {
namespace {

using nlohmann::ordered_json;

template <class Config>
ordered_json rows_of(std::span<const ConfigKey<Config>> keys) {
  ordered_json rows = ordered_json::array();
  for (const ConfigKey<Config>& key : keys) {
    const std::string section = *key.section == 0 ? "" : std::string(key.section) + ".";
    rows.push_back({{"key", section + key.name},
                    {"type", key.type},
                    {"default", key.standard},
                    {"allowed", key.allowed},
                    {"same", key.same},
                    {"meaning", key.meaning}});
  }
  return rows;
}

template <CounterEnum Enum>
void add_counters(ordered_json& rows) {
  for_each_counter<Enum>([&rows](const CounterRow<Enum>& row) {
    std::string metric = row.metric == nullptr ? "" : row.metric->name;
    if (row.metric != nullptr && *row.metric->label != 0) {
      metric += std::string("{") + row.metric->label + "=\"" + counter_value(row.counter, 0).label_value + "\"}";
    }
    rows.push_back({{"name", row.name}, {"meaning", row.help}, {"metric", metric}});
  });
}

// Returns a table for each set of counters in the documents of `gradlane stats --json`.
ordered_json counters() {
  ordered_json sets;
  add_counters<QueueCounter>(sets["ports[].queues[]"]);
  add_counters<FrameVerdict>(sets["ports[].queues[]"]);
  add_counters<TrafficClass>(sets["ports[].queues[]"]);
  add_counters<Counter>(sets["ranks[]"]);
  add_counters<accel::Counter>(sets["accelerator"]);
  add_counters<accel::BundleFault>(sets["accelerator"]);
  add_counters<accel::StreamFigure>(sets["accelerator"]);
  return sets;
}

template <CounterEnum Enum>
void add_values(CounterValues& values) {
  for_each_counter<Enum>([&values](const CounterRow<Enum>& row) { values.push_back(counter_value(row.counter, 1)); });
}

// Returns figures with which a scrape has every metric: one of each part, and all counters.
NodeFigures sample_figures() {
  NodeFigures node;
  node.workers.emplace_back();
  node.awaited.emplace_back();
  node.pools.emplace_back();
  node.neighbours.emplace_back().path_bytes = 1400;
  PortFigures& port = node.ports.emplace_back();
  port.speed_mbps = 1000;
  CounterValues& queue = port.queues.emplace_back();
  add_values<QueueCounter>(queue);
  add_values<FrameVerdict>(queue);
  add_values<TrafficClass>(queue);
  RankFigures& rank = node.ranks.emplace_back();
  add_values<Counter>(rank.counters);
  rank.codecs.emplace_back();
  rank.strategies.emplace_back();
  rank.links.emplace_back();
  return node;
}

ordered_json exit_rows() {
  ordered_json rows = ordered_json::array();
  for (const ExitRow& row : kExitRows) {
    rows.push_back({{"program", row.program}, {"status", row.status}, {"meaning", row.meaning}});
  }
  return rows;
}

}  // namespace
}  // namespace gradlane

int main() {
  using namespace gradlane;
  const ProcessFigures process = {.version = "", .uptime_s = 0, .pid = 0, .rss_kb = 1};
  const ordered_json document = {
      {"node_keys", rows_of(node_keys())},
      {"accelerator_keys", rows_of(accelerator_keys())},
      {"counters", counters()},
      {"metrics", metrics_document(sample_figures(), process, {}, MetricsFormat::kText)},
      {"exit", exit_rows()},
  };
  std::puts(document.dump(1).c_str());
  return 0;
}
