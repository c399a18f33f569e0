// metrics.cc - a node's figures for Prometheus (pure functions)
#include "dataplane/status/metrics.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace gradlane {
namespace {

using Type = MetricsText::Type;
using std::string_view_literals::operator""sv;

constexpr uint64_t kBitsPerByte = 8;

// ---- Counters of packet paths

struct Place {
  MetricLabels labels;
  const CounterValues* counters;
};

// Adds the counters of all places, such as queues of ports. Each place has the same counters in the same order.
void add_counters(MetricsText& out, const std::vector<Place>& places) {
  if (places.empty()) return;
  const CounterValues& all = *places.front().counters;
  for (size_t first = 0; first < all.size(); ++first) {
    const MetricFamily* const metric = all[first].metric;
    const auto is_of = [metric](const CounterValue& it) { return it.metric == metric; };
    if (metric == nullptr || std::ranges::any_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(first), is_of))
      continue;
    out.family(metric->name, Type::kCounter, metric->help);
    for (size_t i = first; i < all.size(); ++i) {
      if (!is_of(all[i])) continue;
      for (const Place& place : places) {
        const MetricLabels labels =
            *metric->label == 0 ? place.labels : place.labels.with(metric->label, all[i].label_value);
        const uint64_t value = (*place.counters)[i].value;
        if (metric->unit == 1) {
          out.sample(labels, value);
        } else {
          out.sample(labels, static_cast<double>(value) * metric->unit);
        }
      }
    }
  }
}

MetricLabels labels_of(const MetricLabels& node, const RankFigures& rank) {
  return node.with("rank", uint64_t{rank.rank}).with("lane", uint64_t{rank.lane});
}

// ---- The node

void add_node(MetricsText& out, const MetricLabels& labels, const NodeFigures& node, const ProcessFigures& process) {
  const auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    out.family(name, Type::kGauge, help);
    out.sample(labels, value);
  };
  out.family("gradlane_build_info", Type::kGauge, "1; version of the daemon");
  out.sample(labels.with("version", process.version), uint64_t{1});
  out.family("gradlane_node_info", Type::kGauge, "1; configuration of the node");
  out.sample(labels.with("codec", node.codec).with("mtu", node.mtu).with("config_digest", node.config_digest),
             uint64_t{1});
  gauge("gradlane_uptime_seconds", "time since the start of the daemon", process.uptime_s);
  if (process.rss_kb != 0) gauge("gradlane_resident_memory_bytes", "memory of the daemon", process.rss_kb * 1024);
  gauge("gradlane_nodes", "nodes of the ring", uint64_t{node.nodes});
  gauge("gradlane_trainers", "trainers that belong to this node", uint64_t{node.trainers});
  gauge("gradlane_trainers_attached", "trainers that are connected", uint64_t{node.attached});
  gauge("gradlane_operations_in_flight", "operations in progress, each lane counted", uint64_t{node.in_flight});
  gauge("gradlane_packets_authenticated", "1: packets are authenticated", uint64_t{node.auth ? 1U : 0U});
  gauge("gradlane_faults_injected", "1: faults are injected into received frames",
        uint64_t{node.faults.any() ? 1U : 0U});

  out.family("gradlane_worker_busy_seconds_total", Type::kCounter,
             "time of rounds that moved packets or data, with all that their CPU did meanwhile");
  for (size_t i = 0; i < node.workers.size(); ++i) {
    out.sample(labels.with("worker", i), node.workers[i].busy_us / 1e6);
  }
  if (!node.awaited.empty()) {
    out.family("gradlane_trainer_awaited_seconds_total", Type::kCounter,
               "with local_reduce: how long operations of the node have waited for this trainer");
  }
  for (const TrainerFigures& it : node.awaited) {
    out.sample(labels.with("rank", uint64_t{it.rank}), it.awaited_us / 1e6);
  }
  out.family("gradlane_buffers", Type::kGauge, "packet buffers");
  for (size_t i = 0; i < node.pools.size(); ++i) out.sample(labels.with("pool", i), node.pools[i].buffers);
  out.family("gradlane_buffers_free", Type::kGauge, "packet buffers that are free");
  for (size_t i = 0; i < node.pools.size(); ++i) out.sample(labels.with("pool", i), node.pools[i].free);
}

// Adds estimates. They may decrease, so they are no counters.
void add_savings(MetricsText& out, const MetricLabels& labels, const Savings& savings) {
  out.family("gradlane_saved_seconds", Type::kGauge,
             "estimate: how much longer all exchanges would have taken uncompressed, at least");
  out.sample(labels, savings.longer());
  out.family("gradlane_codec_cpu_seconds", Type::kGauge,
             "estimate: CPU time of codecs, beyond the time for raw elements");
  out.sample(labels, savings.codec);
}

// ---- Neighbours and ports

void add_neighbours(MetricsText& out, const MetricLabels& node, const std::vector<NeighbourFigures>& neighbours) {
  const auto labels = [&node](const NeighbourFigures& it) { return node.with("peer_node", uint64_t{it.node}); };
  out.family("gradlane_neighbour_up", Type::kGauge, "1: the neighbour is connected");
  for (const NeighbourFigures& it : neighbours) {
    out.sample(labels(it).with("ip", it.ip).with("port", it.port), uint64_t{it.up ? 1U : 0U});
  }
  out.family("gradlane_neighbour_path_mtu_bytes", Type::kGauge,
             "longest IP packets on the path to the neighbour, if shorter than the MTU");
  for (const NeighbourFigures& it : neighbours) {
    if (it.path_bytes != 0) out.sample(labels(it), uint64_t{it.path_bytes});
  }
  out.family(
      "gradlane_neighbour_refused_packets_total", Type::kCounter,
      "refused packets of the neighbour: a wrong tag, no tag, a tag but no key here, or a ToS that is not in `tos`");
  for (const NeighbourFigures& it : neighbours) {
    for (const auto& [reason, count] : {std::pair{"forged"sv, it.forged},
                                        {"untagged"sv, it.untagged},
                                        {"tagged"sv, it.tagged},
                                        {"wrong_tos"sv, it.wrong_tos}}) {
      out.sample(labels(it).with("reason", reason), count);
    }
  }
}

void add_ports(MetricsText& out, const MetricLabels& node, const std::vector<PortFigures>& ports) {
  out.family("gradlane_port_info", Type::kGauge, "1; device of the port");
  for (const PortFigures& it : ports) {
    out.sample(node.with("port", it.name).with("device", it.device).with("driver", it.driver).with("mac", it.mac),
               uint64_t{1});
  }
  out.family("gradlane_port_up", Type::kGauge, "1: the link of the port is up");
  for (const PortFigures& it : ports) {
    out.sample(node.with("port", it.name), uint64_t{it.link == "up"sv ? 1U : 0U});
  }
  out.family("gradlane_port_speed_bytes", Type::kGauge,
             "speed of its link in bytes per second, if the device reports it");
  for (const PortFigures& it : ports) {
    if (it.speed_mbps != 0) out.sample(node.with("port", it.name), it.speed_mbps * uint64_t{1'000'000} / kBitsPerByte);
  }
  std::vector<Place> places;
  for (const PortFigures& it : ports) {
    for (size_t i = 0; i < it.queues.size(); ++i) {
      places.push_back({node.with("port", it.name).with("queue", i), &it.queues[i]});
    }
  }
  add_counters(out, places);
}

// ---- Ranks and links

void add_links(MetricsText& out, const MetricLabels& node, const std::vector<RankFigures>& ranks) {
  size_t links = 0;
  const auto each = [&](std::string_view name, Type type, std::string_view help, auto value) {
    out.family(name, type, help);
    links = 0;
    for (const RankFigures& rank : ranks) {
      for (const LinkFigures& link : rank.links) {
        out.sample(labels_of(node, rank).with("peer", uint64_t{link.rank}), value(link));
        ++links;
      }
    }
  };
  using Link = const LinkFigures&;
  each("gradlane_link_up", Type::kGauge, "1: both ends are connected in this session",
       [](Link it) { return uint64_t{it.up ? 1U : 0U}; });
  each("gradlane_link_smoothed_rtt_seconds", Type::kGauge, "current round-trip time, smoothed; 0: not measured yet",
       [](Link it) { return it.rtt_us / 1e6; });
  each("gradlane_link_window_packets", Type::kGauge, "congestion window", [](Link it) { return it.window; });
  each("gradlane_link_in_flight_packets", Type::kGauge, "data packets that are not acknowledged",
       [](Link it) { return uint64_t{it.in_flight}; });
  each("gradlane_link_sent_packets_total", Type::kCounter, "data packets sent, without retransmissions",
       [](Link it) { return it.sent; });
  each("gradlane_link_retransmitted_packets_total", Type::kCounter, "data packets sent again",
       [](Link it) { return it.resent; });
  each("gradlane_link_sent_bytes_total", Type::kCounter,
       "bytes of data packets, sent first or again, from the link header on", [](Link it) { return it.bytes; });
  each("gradlane_link_window_full_seconds_total", Type::kCounter,
       "how long the window was full, so that packets had to wait", [](Link it) { return it.full_us / 1e6; });
  each("gradlane_link_window_full_bytes_total", Type::kCounter, "bytes that were sent while the window was full",
       [](Link it) { return it.full_bytes; });
  if (links > kMostRttHistograms) return;
  out.family("gradlane_link_rtt_seconds", Type::kHistogram, "round trips of acknowledged packets");
  for (const RankFigures& rank : ranks) {
    for (const LinkFigures& link : rank.links) {
      out.times(labels_of(node, rank).with("peer", uint64_t{link.rank}), link.rtt);
    }
  }
}

void add_ranks(MetricsText& out, const MetricLabels& node, const std::vector<RankFigures>& ranks) {
  out.family("gradlane_ring_whole", Type::kGauge, "1: the ring is ready, as this rank sees it");
  for (const RankFigures& it : ranks) out.sample(labels_of(node, it), uint64_t{it.ring == "whole"sv ? 1U : 0U});
  std::vector<Place> places;
  for (const RankFigures& it : ranks) places.push_back({labels_of(node, it), &it.counters});
  add_counters(out, places);
  out.family("gradlane_elements_raw_bytes_total", Type::kCounter, "size in memory of the elements that were sent");
  for (const RankFigures& it : ranks) {
    for (const CodecFigures& codec : it.codecs) {
      out.sample(labels_of(node, it).with("codec", codec.word), codec.element_bytes);
    }
  }
  out.family("gradlane_elements_sent_bytes_total", Type::kCounter,
             "size of the same elements as they were sent: encoded, with the headers of their runs");
  for (const RankFigures& it : ranks) {
    for (const CodecFigures& codec : it.codecs) {
      out.sample(labels_of(node, it).with("codec", codec.word), codec.run_bytes);
    }
  }
  out.family("gradlane_operation_seconds", Type::kHistogram,
             "operations that succeeded, from their submission on, each lane counted");
  for (const RankFigures& it : ranks) {
    for (const StrategyFigures& strategy : it.strategies) {
      out.times(labels_of(node, it).with("strategy", strategy.word), strategy.times);
    }
  }
  add_links(out, node, ranks);
}

}  // namespace

std::string metrics_document(const NodeFigures& node, const ProcessFigures& process, const Savings& savings,
                             MetricsFormat format) {
  MetricsText out(format);
  const MetricLabels labels = MetricLabels().with("node", uint64_t{node.node});
  add_node(out, labels, node, process);
  add_savings(out, labels, savings);
  add_neighbours(out, labels, node.neighbours);
  add_ports(out, labels, node.ports);
  add_ranks(out, labels, node.ranks);
  return out.end();
}

}  // namespace gradlane
