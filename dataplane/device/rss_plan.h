// rss_plan.h - which packets come to a node, and how queues and RSS can have them at their lanes (pure functions)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/config.h"

namespace gradlane {

// Packets that a neighbour sends to one lane of this node; addresses and ports in host byte order.
struct ArrivingFlow {
  unsigned lane = 0;
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  bool operator==(const ArrivingFlow&) const = default;
};

// All of them, each once. `nodes`: those reached through the port in question; empty: all.
[[nodiscard]] std::vector<ArrivingFlow> arriving_flows(const NodeConfig& config, std::span<const unsigned> nodes);

// Lane k's packets arrive at queue k % queues, which worker k % queues % workers polls, and worker k % workers runs the
// lane. True if these two are the same for every lane.
[[nodiscard]] bool workers_fit(unsigned lanes, unsigned queues, unsigned workers) noexcept;

inline constexpr size_t kLeastRssKey = 16;  // bytes that addresses and ports use

// Toeplitz hash of both addresses and both ports, as NICs compute it. The key has at least kLeastRssKey bytes.
[[nodiscard]] uint32_t rss_hash(const ArrivingFlow& flow, std::span<const uint8_t> key) noexcept;

struct RssPlan {
  std::vector<uint8_t> key;
  std::vector<uint16_t> table;  // queue by hash % size
};

// A key with which no two flows that belong to different queues meet in an entry of the table, and the table which
// puts every flow at queue lane % queues. Everything else is at queue 0. Where there are too many flows for that, as
// with links to all nodes, the key leaves out where they come from. Nothing if no such key was found, or
// `entries` is not a power of two. The same arguments have the same plan.
[[nodiscard]] std::optional<RssPlan> plan_rss(std::span<const ArrivingFlow> flows, unsigned queues, size_t entries,
                                              size_t key_bytes);

}  // namespace gradlane
