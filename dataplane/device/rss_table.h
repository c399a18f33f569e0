// rss_table.h - the flows that arrive at a node, and an RSS key and table that bring each flow to the queue of its lane
// (pure functions)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/config.h"

namespace gradlane {

// The packets that a neighbour sends to one lane of this node. Addresses and ports are in host byte order.
struct ArrivingFlow {
  unsigned lane = 0;
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  bool operator==(const ArrivingFlow&) const = default;
};

// Returns all flows that come to this node, each once. `nodes` are the nodes reached through the port; empty: all
// nodes.
[[nodiscard]] std::vector<ArrivingFlow> arriving_flows(const NodeConfig& config, std::span<const unsigned> nodes);

// Returns whether each lane's packets come to the worker that runs the lane. Packets of lane k arrive at queue k %
// queues, which worker k % queues % workers polls. Worker k % workers runs lane k.
[[nodiscard]] bool workers_fit(unsigned lanes, unsigned queues, unsigned workers) noexcept;

inline constexpr size_t kLeastRssKey = 16;  // bytes of the key that addresses and ports use

// Returns the Toeplitz hash of both addresses and both ports, as NICs compute it. The key must have at least
// kLeastRssKey bytes.
[[nodiscard]] uint32_t rss_hash(const ArrivingFlow& flow, std::span<const uint8_t> key) noexcept;

struct RssTable {
  std::vector<uint8_t> key;
  std::vector<uint16_t> table;  // queue number, by hash % size
};

// Finds a key, and a table that brings every flow to queue lane % queues. Flows of different queues must not share an
// entry of the table. Entries that no flow uses contain queue 0. With too many flows for such a table, for example with
// links to all nodes, the key ignores the source address. Returns nothing if no such key was found, or if `entries` is
// not a power of two. Equal arguments always give equal results.
[[nodiscard]] std::optional<RssTable> plan_rss(std::span<const ArrivingFlow> flows, unsigned queues, size_t entries,
                                               size_t key_bytes);

}  // namespace gradlane
