// metrics_test.cc - a node's figures as metrics for Prometheus, and their names
#include "dataplane/status/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "collectives/counters.h"
#include "dataplane/frame/frame.h"
#include "dataplane/lane/port_queue.h"

namespace gradlane::test::metrics_test {
namespace {

using testing::HasSubstr;
using testing::Not;

const ProcessFigures kProcess = {.version = "0.1.0", .uptime_s = 2.5, .pid = 4711, .rss_kb = 2};

LinkFigures link(unsigned rank) {
  LinkFigures link{.rank = rank, .up = true, .rtt_us = 12.5, .window = 10.5, .in_flight = 3};
  link.sent = 40;
  link.resent = 2;
  link.bytes = 61000;
  link.full_us = 7.5;
  link.full_bytes = 50000;
  link.rtt.add(5 * kMicrosecond);
  return link;
}

NodeFigures figures() {
  NodeFigures node;
  node.node = 1;
  node.nodes = 3;
  node.codec = "fixed:10";
  node.config_digest = "0xabcd";
  node.mtu = 9000;
  node.trainers = 2;
  node.attached = 1;
  node.in_flight = 4;
  node.workers.push_back({.busy_us = 1'500'000});
  node.pools.push_back({.buffers = 3344, .free = 3300});
  NeighbourFigures& neighbour = node.neighbours.emplace_back();
  neighbour.node = 2;
  neighbour.ip = "10.77.0.3";
  neighbour.port = "next";
  neighbour.path_bytes = 1400;
  neighbour.forged = 1;
  PortFigures& port = node.ports.emplace_back();
  port.name = "next";
  port.device = "net_ring0";
  port.driver = "net_ring";
  port.link = "up";
  port.speed_mbps = 10'000;
  const auto queue = [](uint64_t received, uint64_t runts) {
    return CounterValues{counter_value(QueueCounter::kReceived, received), counter_value(FrameVerdict::kRunt, runts)};
  };
  port.queues = {queue(7, 0), queue(1, 9)};
  RankFigures& rank = node.ranks.emplace_back();
  rank.rank = 5;
  rank.ring = "whole";
  rank.links.push_back(link(6));
  rank.counters = {counter_value(Counter::kRetransmitTimeout, 11), counter_value(Counter::kExchangeNs, 1'500'000'000),
                   counter_value(Counter::kElementBytes, 4000)};
  rank.codecs.push_back({CodecId::kFixed, "fixed", 4000, 700});
  rank.strategies.push_back({"rings", {}});
  rank.strategies[0].times.add(kMillisecond);
  return node;
}

Savings worth() {
  Savings worth;
  worth.raw_bytes = 10;
  worth.sent_bytes = 5;
  worth.rate = 1e6;
  worth.exchange = 1.5;
  worth.raw_link = 4;
  worth.codec = 0.25;
  return worth;
}

std::string document(const NodeFigures& node) {
  return metrics_document(node, kProcess, worth(), MetricsFormat::kText);
}

TEST(Metrics, TheNode) {
  EXPECT_THAT(document(figures()), testing::StartsWith(R"(# HELP gradlane_build_info 1; version of the daemon
# TYPE gradlane_build_info gauge
gradlane_build_info{node="1",version="0.1.0"} 1
# HELP gradlane_node_info 1; configuration of the node
# TYPE gradlane_node_info gauge
gradlane_node_info{node="1",codec="fixed:10",mtu="9000",config_digest="0xabcd"} 1
# HELP gradlane_uptime_seconds time since the start of the daemon
# TYPE gradlane_uptime_seconds gauge
gradlane_uptime_seconds{node="1"} 2.5
# HELP gradlane_resident_memory_bytes memory of the daemon
# TYPE gradlane_resident_memory_bytes gauge
gradlane_resident_memory_bytes{node="1"} 2048
)"));
}

TEST(Metrics, EachFigureIsThere) {
  const std::string text = document(figures());
  for (const char* const line :
       {"gradlane_nodes{node=\"1\"} 3",
        "gradlane_trainers{node=\"1\"} 2",
        "gradlane_trainers_attached{node=\"1\"} 1",
        "gradlane_operations_in_flight{node=\"1\"} 4",
        "gradlane_faults_injected{node=\"1\"} 0",
        "gradlane_worker_busy_seconds_total{node=\"1\",worker=\"0\"} 1.5",
        "gradlane_buffers{node=\"1\",pool=\"0\"} 3344",
        "gradlane_buffers_free{node=\"1\",pool=\"0\"} 3300",
        "gradlane_neighbour_up{node=\"1\",peer_node=\"2\",ip=\"10.77.0.3\",port=\"next\"} 0",
        "gradlane_neighbour_path_mtu_bytes{node=\"1\",peer_node=\"2\"} 1400",
        "gradlane_neighbour_refused_packets_total{node=\"1\",peer_node=\"2\",reason=\"forged\"} 1",
        "gradlane_port_up{node=\"1\",port=\"next\"} 1",
        "gradlane_port_speed_bytes{node=\"1\",port=\"next\"} 1250000000",
        "gradlane_port_receive_frames_total{node=\"1\",port=\"next\",queue=\"1\"} 1",
        "gradlane_port_drops_total{node=\"1\",port=\"next\",queue=\"1\",reason=\"runt\"} 9",
        "gradlane_ring_whole{node=\"1\",rank=\"5\",lane=\"0\"} 1",
        "gradlane_retransmissions_total{node=\"1\",rank=\"5\",lane=\"0\",cause=\"timeout\"} 11",
        "gradlane_exchange_seconds_total{node=\"1\",rank=\"5\",lane=\"0\"} 1.5",
        "gradlane_elements_raw_bytes_total{node=\"1\",rank=\"5\",lane=\"0\",codec=\"fixed\"} 4000",
        "gradlane_elements_sent_bytes_total{node=\"1\",rank=\"5\",lane=\"0\",codec=\"fixed\"} 700",
        "gradlane_operation_seconds_bucket{node=\"1\",rank=\"5\",lane=\"0\",strategy=\"rings\",le=\"0.000524288\"} 0",
        "gradlane_operation_seconds_bucket{node=\"1\",rank=\"5\",lane=\"0\",strategy=\"rings\",le=\"0.001048576\"} 1",
        "gradlane_operation_seconds_sum{node=\"1\",rank=\"5\",lane=\"0\",strategy=\"rings\"} 0.001",
        "gradlane_link_window_packets{node=\"1\",rank=\"5\",lane=\"0\",peer=\"6\"} 10.5",
        "gradlane_link_smoothed_rtt_seconds{node=\"1\",rank=\"5\",lane=\"0\",peer=\"6\"} 1.25e-05",
        "gradlane_link_window_full_seconds_total{node=\"1\",rank=\"5\",lane=\"0\",peer=\"6\"} 7.5e-06",
        "gradlane_link_window_full_bytes_total{node=\"1\",rank=\"5\",lane=\"0\",peer=\"6\"} 50000",
        "gradlane_saved_seconds{node=\"1\"} 2.5",
        "gradlane_codec_cpu_seconds{node=\"1\"} 0.25",
        "gradlane_link_retransmitted_packets_total{node=\"1\",rank=\"5\",lane=\"0\",peer=\"6\"} 2",
        "gradlane_link_rtt_seconds_count{node=\"1\",rank=\"5\",lane=\"0\",peer=\"6\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
}

// Prometheus refuses the whole scrape if it has a series twice, or a family in two places.
TEST(Metrics, SeriesAndFamiliesAreThereOnce) {
  NodeFigures node = figures();
  node.ports.push_back(node.ports[0]);
  node.ports[1].name = "prev";
  node.ranks.push_back(node.ranks[0]);
  node.ranks[1].lane = 1;
  std::set<std::string> seen;
  std::istringstream lines(document(node));
  for (std::string line; std::getline(lines, line);) {
    const bool comment = line.starts_with('#');
    EXPECT_TRUE(seen.insert(comment ? line : line.substr(0, line.rfind(' '))).second) << line;
  }
}

TEST(Metrics, OfVeryManyLinksHistogramsAreLeftOut) {
  NodeFigures node = figures();
  node.ranks[0].links.assign(kMostRttHistograms, link(0));
  EXPECT_THAT(document(node), HasSubstr("gradlane_link_rtt_seconds_bucket"));
  node.ranks[0].links.push_back(link(0));
  EXPECT_THAT(document(node), Not(HasSubstr("gradlane_link_rtt_seconds")));
  EXPECT_THAT(document(node), HasSubstr("gradlane_link_smoothed_rtt_seconds"));
}

TEST(Metrics, ANodeOfNothing) {
  EXPECT_THAT(metrics_document({}, {}, {}, MetricsFormat::kOpenMetrics), testing::EndsWith("# EOF\n"));
}

// ---- The rows of counters

// Returns the label values of each metric. Adds the names of counters without a metric to `without`.
template <class... Enums>
std::map<const MetricFamily*, std::multiset<std::string>> samples(std::set<std::string>& without) {
  std::map<const MetricFamily*, std::multiset<std::string>> found;
  const auto add = [&]<class Enum>(Enum) {
    for_each_counter<Enum>([&](const CounterRow<Enum>& row) {
      const CounterValue value = counter_value(row.counter, 0);
      if (row.metric == nullptr)
        without.insert(row.name);
      else
        found[row.metric].insert(*row.metric->label == 0 ? "" : value.label_value);
    });
  };
  (add(Enums{}), ...);
  return found;
}

void expect_apart(const std::map<const MetricFamily*, std::multiset<std::string>>& metrics) {
  for (const auto& [metric, values] : metrics) {
    EXPECT_TRUE(std::string_view(metric->name).ends_with("_total")) << metric->name;
    EXPECT_NE(*metric->help, 0) << metric->name;
    for (const std::string& value : values) EXPECT_EQ(values.count(value), 1U) << metric->name << " " << value;
  }
}

TEST(MetricRows, TheLabelTellsCountersApart) {
  std::set<std::string> without;
  expect_apart(samples<Counter>(without));
  EXPECT_EQ(without, (std::set<std::string>{"run_bytes", "element_bytes"})) << "these are counted by codec";
  without.clear();
  expect_apart(samples<QueueCounter, FrameVerdict, TrafficClass>(without));
  EXPECT_EQ(without, std::set<std::string>{"host"}) << "of TrafficClass: FrameVerdict has it";
}

}  // namespace
}  // namespace gradlane::test::metrics_test
