// rss_table.cc - the flows to a node, queues and workers, RSS keys and tables (pure functions)
#include "dataplane/device/rss_table.h"

#include <rte_thash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/random.h"
#include "collectives/strategy/topology.h"

namespace gradlane {
namespace {

constexpr uint64_t kKeys = 4096;  // number of keys to try; each takes some microseconds
constexpr uint16_t kNoQueue = 0xffff;

// The source address is hashed with bits 0 to 62 of the key only. If these are zero, the hash ignores that address.
constexpr size_t kOfSource = 8;  // bytes of the key; these include all bits that hash the source address

void fill_key(uint64_t number, bool by_ports, std::span<uint8_t> key) noexcept {
  Random random(number << 32);
  for (uint8_t& byte : key) byte = static_cast<uint8_t>(random.next() >> 56);
  if (by_ports) std::ranges::fill(key.first(kOfSource), uint8_t{0});
}

// Fills the table and returns true, or returns false if flows of different queues would share an entry. Entries without
// a flow stay kNoQueue.
bool fill_table(std::span<const ArrivingFlow> flows, unsigned queues, std::span<const uint8_t> key,
                std::span<uint16_t> table) noexcept {
  std::ranges::fill(table, kNoQueue);
  for (const ArrivingFlow& flow : flows) {
    uint16_t& entry = table[rss_hash(flow, key) % table.size()];
    const auto queue = static_cast<uint16_t>(flow.lane % queues);
    if (entry != kNoQueue && entry != queue) return false;
    entry = queue;
  }
  return true;
}

}  // namespace

std::vector<ArrivingFlow> arriving_flows(const NodeConfig& config, std::span<const unsigned> nodes) {
  std::vector<ArrivingFlow> flows;
  const unsigned ranks = ranks_per_node(config);
  const unsigned world = world_of(config);
  const auto port = [&](unsigned lane, unsigned rank) {
    return static_cast<uint16_t>(config.udp_port + lane * ranks + rank % ranks);
  };
  for (unsigned lane = 0; lane < config.lanes; ++lane) {
    for (unsigned rank = config.rank * ranks; rank < (config.rank + 1) * ranks; ++rank) {
      for (const unsigned other : linked_ranks(config.strategies, world, rank)) {
        const unsigned node = other / ranks;
        const bool reached = nodes.empty() || std::ranges::find(nodes, node) != nodes.end();
        if (node == config.rank || !reached) continue;
        flows.push_back({.lane = lane,
                         .source_ip = config.nodes[node].ip,
                         .destination_ip = config.nodes[config.rank].ip,
                         .source_port = port(lane, other),
                         .destination_port = port(lane, rank)});
      }
    }
  }
  return flows;
}

bool workers_fit(unsigned lanes, unsigned queues, unsigned workers) noexcept {
  for (unsigned lane = 0; lane < lanes; ++lane) {
    if (lane % queues % workers != lane % workers) return false;
  }
  return true;
}

uint32_t rss_hash(const ArrivingFlow& flow, std::span<const uint8_t> key) noexcept {
  std::array<uint32_t, 3> tuple = {flow.source_ip, flow.destination_ip,
                                   uint32_t{flow.source_port} << 16 | flow.destination_port};
  // The copy is aligned, because rte_softrss() reads it as words.
  std::array<uint32_t, kLeastRssKey / 4> words;
  std::memcpy(words.data(), key.data(), kLeastRssKey);
  return rte_softrss(tuple.data(), static_cast<uint32_t>(tuple.size()), reinterpret_cast<const uint8_t*>(words.data()));
}

std::optional<RssTable> plan_rss(std::span<const ArrivingFlow> flows, unsigned queues, size_t entries,
                                 size_t key_bytes) {
  if (!std::has_single_bit(entries) || key_bytes < kLeastRssKey) return std::nullopt;
  RssTable plan{.key = std::vector<uint8_t>(key_bytes), .table = std::vector<uint16_t>(entries)};
  // With a hash of ports alone, few entries are enough for any number of nodes. But then packets of other flows with
  // the same ports, from all nodes, share one queue, too. So this is the second choice.
  for (const bool by_ports : {false, true}) {
    for (uint64_t number = 1; number <= kKeys; ++number) {
      fill_key(number, by_ports, plan.key);
      if (!fill_table(flows, queues, plan.key, plan.table)) continue;
      std::ranges::replace(plan.table, kNoQueue, uint16_t{0});
      return plan;
    }
  }
  return std::nullopt;
}

}  // namespace gradlane
