// status.cc - what a node looks like from outside (control thread only)
#include "dataplane/status/status.h"

#include <fmt/format.h>
#include <rte_mempool.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "config/loader.h"
#include "config/values.h"
#include "dataplane/device/eal.h"
#include "dataplane/node/node.h"
#include "dataplane/node/ring_facts.h"
#include "dataplane/watch/probe_json.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr Nanos kProbeTime = 3 * kSecond;

const char* state_name(NeighbourFacts::PortState state) {
  using State = NeighbourFacts::PortState;
  return state == State::kUp ? "up" : state == State::kDown ? "down" : "starting";
}

const char* ring_name(RingSnapshot::State state) {
  switch (state) {
    case RingSnapshot::State::kUnknown:
      break;
    case RingSnapshot::State::kWhole:
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

json rival_json(const NodePort& it) {
  const std::string rival = rival_of(it, clock_now());
  return rival.empty() ? json(nullptr) : json(rival);
}

// KiB of this process in memory; 0 if that cannot be known.
uint64_t resident_kb() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long size = 0;
  unsigned long resident = 0;
  const int read = std::fscanf(file, "%lu %lu", &size, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 1024 : 0;
}

json faults_json(const InjectedFaults& faults) {
  if (!faults.any()) return nullptr;
  return {{"drop", faults.drop},       {"duplicate", faults.duplicate},
          {"reorder", faults.reorder}, {"corrupt", faults.corrupt},
          {"delay", faults.delay},     {"delay_time_us", static_cast<double>(faults.delay_time) / kMicrosecond},
          {"seed", faults.seed}};
}

// for_each(visit) calls visit(name, value) for each counter.
template <class Counted>
json counters_json(const Counted& counted) {
  json counters = json::object();
  counted.for_each_published([&counters](const char* name, uint64_t value) { counters[name] = value; });
  return counters;
}

json ports_json(const Node& node) {
  json ports = json::array();
  for (size_t i = 0; i < node.ports().size(); ++i) {
    const NodePort& it = node.ports()[i];
    json queues = json::array();
    for (const auto& queue : it.queues) {
      queues.push_back({{"queue", queues.size()}, {"counters", counters_json(*queue)}});
    }
    ports.push_back({{"name", it.port->name()},
                     {"device", node.config().ports[i].device},
                     {"link", state_name(state_of(*it.port))},
                     {"mac", mac_text(it.port->mac())},
                     {"address", claim_name(it.claim->state())},
                     {"rival", rival_json(it)},
                     {"steering", it.port->steering().text()},
                     {"queues", std::move(queues)}});
  }
  return ports;
}

json pools_json(const Node& node) {
  json pools = json::array();
  for (const auto& pool : node.pools()) {
    const rte_mempool* const mempool = pool->mempool();
    if (mempool == nullptr) continue;
    pools.push_back({{"lane", pools.size()}, {"buffers", mempool->size}, {"free", rte_mempool_avail_count(mempool)}});
  }
  return pools;
}

// "workers.lanes: 1 here, 2 there"
std::string difference_of(const Failure& refused) {
  const std::string text = difference_text(refused, "here", "there");
  return text.empty() ? text : text.substr(2);
}

json neighbours_json(const Node& node) {
  json neighbours = json::array();
  for (const RingWatch::Seen& seen : node.ring().neighbours()) {
    const NeighbourFacts& facts = seen.facts;
    const auto it =
        std::ranges::find_if(node.neighbours(), [&facts](const auto& each) { return each->node == facts.node; });
    const uint64_t mac = it == node.neighbours().end() ? 0 : (*it)->mac.load(std::memory_order_relaxed);
    neighbours.push_back({{"node", facts.node},
                          {"ip", ip_text(facts.ip)},
                          {"port", facts.port},
                          {"mac", mac == 0 ? json(nullptr) : json(mac_text(unpack_mac(mac)))},
                          {"state", facts.up ? "up" : "missing"},
                          {"why", seen.why},
                          {"trouble", seen.trouble},
                          {"speaks_from", facts.speaks_from == 0 ? "" : ip_text(facts.speaks_from)},
                          {"difference", difference_of(facts.refused)},
                          {"arp_tries", facts.arp_tries},
                          {"forged", facts.forged},
                          {"untagged", facts.untagged},
                          {"tagged", facts.tagged},
                          {"wrong_tos", facts.wrong_tos}});
  }
  return neighbours;
}

json links_json(const Lane& lane) {
  json links = json::array();
  for (size_t i = 0; i < lane.links(); ++i) {
    const LinkSnapshot link = lane.link_snapshot(i);
    links.push_back({{"rank", link.rank},
                     {"up", link.up},
                     {"rtt_us", link.rtt / kMicrosecond},
                     {"window", link.window},
                     {"in_flight", link.in_flight}});
  }
  return links;
}

json ranks_json(const Node& node) {
  json ranks = json::array();
  node.for_each_lane([&](const Lane& lane, unsigned number) {
    using State = RingSnapshot::State;
    const RingSnapshot ring = lane.ring_snapshot();
    const bool missing = ring.state == State::kIncomplete && ring.missing != lane.rank();
    ranks.push_back({{"rank", lane.rank()},
                     {"lane", number},
                     {"ring", ring_name(ring.state)},
                     {"missing", missing ? json(ring.missing) : json(nullptr)},
                     {"refused", ring.state == State::kRefused ? failure_text(ring.refused) : ""},
                     {"failed", ring.failed ? failure_text(ring.failed) : ""},
                     {"links", links_json(lane)},
                     {"counters", counters_json(lane)}});
  });
  return ranks;
}

// Device names are whatever stands in the configuration.
std::string text_of(const json& document) { return document.dump(-1, ' ', true, json::error_handler_t::replace); }

// How long a probe may take: "probe", "probe 3000".
std::optional<Nanos> probe_time(std::string_view request) {
  static constexpr std::string_view kProbe = "probe";
  if (request == kProbe) return kProbeTime;
  if (!request.starts_with(kProbe) || request.substr(kProbe.size(), 1) != " ") return std::nullopt;
  const auto time = parse_whole(request.substr(kProbe.size() + 1));
  if (!time || *time < 100 || *time > 30'000) return std::nullopt;
  return *time * kMillisecond;
}

}  // namespace

json status_json(const Node& node, const ProcessFacts& process) {
  const NodeConfig& config = node.config();
  const std::chrono::duration<double> uptime = AdminSocket::Clock::now() - process.started;
  return {{"node", config.rank},
          {"nodes", config.nodes.size()},
          {"version", process.version},
          {"uptime_s", uptime.count()},
          {"pid", getpid()},
          {"rss_kb", resident_kb()},
          {"config_digest", fmt::format("{:#018x}", rank_table_digest(config))},
          {"codec", config.codec.name()},
          {"mtu", config.mtu},
          {"lanes", config.lanes},
          {"trainers", config.trainers},
          {"attached", node.server().attached()},
          {"in_flight", node.in_flight()},
          {"failed_s_ago", node.failed_ago() ? json(*node.failed_ago()) : json(nullptr)},
          {"auth", !config.key_file.empty()},
          {"faults", faults_json(config.faults)},
          {"ports", ports_json(node)},
          {"pools", pools_json(node)},
          {"neighbours", neighbours_json(node)},
          {"ranks", ranks_json(node)}};
}

AdminAnswer answer_admin(Node& node, const ProcessFacts& process, const std::string& request) {
  if (request == "stats") return {text_of(status_json(node, process)), {}};
  const std::optional<Nanos> most = probe_time(request);
  if (!most) return {admin_error("unknown request; allowed: stats, probe, probe MILLISECONDS (100 to 30000)"), {}};
  // One run serves all that ask while it lasts.
  node.start_probing(*most);
  return {"", [&node, process]() -> std::optional<std::string> {
            if (node.prober().running()) return std::nullopt;
            json document = status_json(node, process);
            document["probes"] = probes_json(node.prober().results(), probe_identity(node.config()));
            return text_of(document);
          }};
}

}  // namespace gradlane
