// node_figures.cc - collects the figures of a node in one walk (control thread only)
#include "dataplane/status/node_figures.h"

#include <fmt/format.h>
#include <rte_mempool.h>

#include <algorithm>

#include "compress/codec_table.h"
#include "config/addresses.h"
#include "config/loader.h"
#include "config/strategies.h"
#include "config/values.h"
#include "config/words.h"
#include "dataplane/node/node.h"
#include "dataplane/node/ring_facts.h"

namespace gradlane {
namespace {

const char* link_name(NeighbourFacts::PortState state) {
  using State = NeighbourFacts::PortState;
  return state == State::kUp ? "up" : state == State::kDown ? "down" : "starting";
}

const char* ring_name(RingSnapshot::State state) {
  switch (state) {
    case RingSnapshot::State::kUnknown:
      break;
    case RingSnapshot::State::kReady:
      return "whole";
    case RingSnapshot::State::kIncomplete:
      return "incomplete";
    case RingSnapshot::State::kRefused:
      return "refused";
  }
  return "unknown";
}

const char* claim_name(AddressClaim::State state) {
  switch (state) {
    case AddressClaim::State::kWaiting:
      break;
    case AddressClaim::State::kProbing:
      return "probing";
    case AddressClaim::State::kHeld:
      return "held";
    case AddressClaim::State::kTaken:
      return "taken";
  }
  return "waiting";
}

const char* checksums_of(const Port& port) noexcept {
  if (!port.started() || port.local_link() || port.of_sockets()) return "";
  return port.checksum_offload() ? "device" : "software";
}

PortFigures port_figures(const Node& node, size_t number, Nanos now) {
  const NodePort& own = node.ports()[number];
  PortFigures figures{.name = own.port->name(),
                      .device = node.config().ports[number].device,
                      .driver = own.port->started() ? own.port->driver() : "",
                      .link = link_name(state_of(*own.port)),
                      .speed_mbps = own.port->link_speed(),
                      .checksums = checksums_of(*own.port),
                      .mac = mac_text(own.port->mac()),
                      .address = claim_name(own.claim->state()),
                      .rival = rival_of(own, now),
                      .steering = own.port->steering().text(),
                      .queues = {}};
  for (const auto& queue : own.queues) {
    CounterValues& counters = figures.queues.emplace_back();
    queue->for_each_published([&counters](const CounterValue& each) { counters.push_back(each); });
  }
  return figures;
}

// Returns the difference in the settings: "workers.lanes: 1 here, 2 there"; "": none.
std::string difference_of(const Failure& refused) {
  const std::string text = difference_text(refused, "here", "there");
  return text.empty() ? text : text.substr(2);
}

NeighbourFigures neighbour_figures(const Node& node, const RingWatch::Seen& seen) {
  const NeighbourFacts& facts = seen.facts;
  const auto it =
      std::ranges::find_if(node.neighbours(), [&facts](const auto& each) { return each->node == facts.node; });
  const uint64_t mac = it == node.neighbours().end() ? 0 : (*it)->mac.load(std::memory_order_relaxed);
  return {.node = facts.node,
          .ip = facts.address,
          .port = facts.port,
          .mac = mac == 0 ? "" : mac_text(unpack_mac(mac)),
          .up = facts.up,
          .why = seen.why,
          .trouble = seen.trouble,
          .speaks_from = facts.speaks_from,
          .path_bytes = facts.path_bytes,
          .difference = difference_of(facts.refused),
          .arp_tries = facts.arp_tries,
          .forged = facts.forged,
          .untagged = facts.untagged,
          .tagged = facts.tagged,
          .wrong_tos = facts.wrong_tos};
}

std::string codec_word(CodecId id) {
  const auto rows = codec_table();
  const auto row = std::ranges::find(rows, id, &CodecRow::id);
  if (row == rows.end()) return "?";
  if (row->variant != nullptr) return fmt::format("{},{}", row->word, row->variant);
  const std::string_view prefix = row->prefix;  // "rel="
  return prefix.empty() ? row->word : fmt::format("{}:{}", row->word, prefix.substr(0, prefix.find('=')));
}

std::vector<CodecFigures> codec_figures(const AllCodecTotals& totals) {
  std::vector<CodecFigures> figures;
  for (size_t i = 0; i < totals.size(); ++i) {
    if (totals[i].element_bytes == 0) continue;
    const auto id = static_cast<CodecId>(i);
    figures.push_back({id, codec_word(id), totals[i].element_bytes, totals[i].run_bytes});
  }
  return figures;
}

std::vector<StrategyFigures> strategy_figures(const OperationTimes& times) {
  std::vector<StrategyFigures> figures;
  for (size_t i = 0; i < times.size(); ++i) {
    if (std::ranges::all_of(times[i].counts, [](uint64_t count) { return count == 0; })) continue;
    figures.push_back({strategy_word(static_cast<StrategyId::Kind>(i)), times[i]});
  }
  return figures;
}

RankFigures rank_figures(const Lane& lane, unsigned number) {
  using State = RingSnapshot::State;
  const RingSnapshot ring = lane.ring_snapshot();
  const bool missing = ring.state == State::kIncomplete && ring.missing != lane.rank();
  RankFigures figures{.rank = lane.rank(),
                      .lane = number,
                      .ring = ring_name(ring.state),
                      .missing = missing ? std::optional(ring.missing) : std::nullopt,
                      .refused = ring.state == State::kRefused ? failure_text(ring.refused) : "",
                      .failed = ring.failed ? failure_text(ring.failed) : "",
                      .links = {},
                      .counters = {},
                      .codecs = codec_figures(lane.codec_totals()),
                      .strategies = strategy_figures(lane.operation_times())};
  for (size_t i = 0; i < lane.links(); ++i) {
    const LinkSnapshot link = lane.link_snapshot(i);
    figures.links.push_back({.rank = link.rank,
                             .up = link.up,
                             .rtt_us = static_cast<double>(link.smoothed_rtt) / kMicrosecond,
                             .window = link.window,
                             .in_flight = link.in_flight,
                             .sent = link.totals.sent,
                             .resent = link.totals.resent,
                             .bytes = link.totals.bytes,
                             .full_us = static_cast<double>(link.totals.full) / kMicrosecond,
                             .full_bytes = link.totals.full_bytes,
                             .rtt = link.totals.rtt});
  }
  lane.published().for_each([&figures](const CounterValue& each) { figures.counters.push_back(each); });
  return figures;
}

// Returns the nodes of the configuration. Their `reach` is for TCP, which needs an address of the kernel: with sockets
// it is the configured address, otherwise `host`.
std::vector<TableFigures> table_figures(const NodeConfig& config) {
  std::vector<TableFigures> figures;
  for (const NodeAddress& it : config.nodes) {
    const std::string address = ip_text(address_of(it));
    figures.push_back({it.rank, address, of_sockets(config) ? address : it.host});
  }
  return figures;
}

}  // namespace

NodeFigures node_figures(const Node& node, Nanos now) {
  const NodeConfig& config = node.config();
  NodeFigures figures{.node = config.rank,
                      .nodes = config.nodes.size(),
                      .config_digest = fmt::format("{:#018x}", rank_table_digest(config)),
                      .codec = config.auto_codec.empty() ? config.codec.name() : config.auto_codec,
                      .strategies = strategy_names(config.strategies),
                      .mtu = config.mtu,
                      .lanes = config.lanes,
                      .trainers = config.trainers,
                      .attached = node.server().attached(),
                      .in_flight = node.in_flight(),
                      .failed_s_ago = node.failed_ago(now),
                      .auth = config.security != Security::kNone,
                      .security = kSecurityWords[static_cast<size_t>(config.security)],
                      .faults = config.faults,
                      .ready = true,
                      .ports = {},
                      .pools = {},
                      .neighbours = {},
                      .table = table_figures(config),
                      .metrics = config.metrics ? address_text(*config.metrics) : "",
                      .workers = {},
                      .awaited = {},
                      .ranks = {},
                      .plan = plan_figures(node.server().reports())};
  for (size_t i = 0; i < node.ports().size(); ++i) figures.ports.push_back(port_figures(node, i, now));
  for (const auto& pool : node.pools()) {
    const rte_mempool* const mempool = pool->mempool();
    if (mempool != nullptr) figures.pools.push_back({mempool->size, rte_mempool_avail_count(mempool)});
  }
  for (const RingWatch::Seen& seen : node.ring().neighbours()) {
    figures.neighbours.push_back(neighbour_figures(node, seen));
  }
  for (const auto& worker : node.workers()) {
    figures.workers.push_back({static_cast<double>(worker->busy()) / kMicrosecond});
  }
  for (unsigned i = 0; config.local_reduce && config.trainers > 1 && i < config.trainers; ++i) {
    const double waited = static_cast<double>(node.awaited(i)) / kMicrosecond;
    figures.awaited.push_back({config.rank * config.trainers + i, waited});
  }
  node.for_each_lane([&figures](const Lane& lane, unsigned number) {
    figures.ranks.push_back(rank_figures(lane, number));
    figures.ready &= lane.ring_snapshot().state == RingSnapshot::State::kReady;
  });
  return figures;
}

}  // namespace gradlane
