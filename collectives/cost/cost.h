// cost.h - the time of one all-reduce for a strategy, codec and ranks, from figures of hosts and links (pure)
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/cost/calibration.h"
#include "collectives/strategy/strategy_id.h"

namespace gradlane {

// The resource that takes most of the time.
enum class PlanLimit : uint8_t { kLatency, kLink, kCodec, kPackets, kMemory };
[[nodiscard]] const char* plan_limit_name(PlanLimit limit) noexcept;

struct AllReduceShape {
  double elements = 0;
  unsigned world = 1;
  StrategyId strategy;
};

// Times of the busiest rank. Shares are times in s during which the resource is busy. They overlap, so they do not add
// up to `seconds`.
struct AllReduceTime {
  double seconds = 0;
  // time of one packet through all hops with empty queues, plus the start of the operation
  double latency = 0;
  double link = 0;     // bytes with all headers / bandwidth
  double codec = 0;    // encoding, merging, decoding
  double packets = 0;  // port and exchange, per packet
  double memory = 0;   // reading and writing the tensor
  PlanLimit limit = PlanLimit::kLatency;
  double sent_bytes = 0;  // bytes on the wire
  double sent_packets = 0;
};

// Returns the time of one all-reduce by the alpha-beta-gamma model of collectives, extended by packets. For each stage
// (an operation has one; rings:G has three, one after the other):
//
//   T = max( max(link, codec + packets, memory) + first,  path )
//
//   beta   link: bytes of sums and results (CodecCost::width) and headers, divided by the link's bandwidth.
//   gamma  codec + packets, which share a core: ns per element and per packet, divided by the lanes, which slow each
//          other down. The resources of a rank work at the same time, so the busiest one counts.
//   alpha  path: time that one packet takes through all hops. Each hop has the latency of the link, the time in the
//          core, and the time on the wire: once out of the host, and once out of a switch, after the packets that other
//          senders send to the same rank.
//
// Hops of long blocks overlap, so only the first hop is added. If blocks are short, a rank waits for each hop.
//
// The model adds once: a link's latency, because ranks tell each other that an operation has begun, and
// Calibration::start.
//
// The model leaves out acknowledgements, losses and several trainers on one host. A world of one takes no time. If the
// strategy cannot carry the codec (CodecCost::owners), or is not possible in this world, `seconds` is infinite and all
// else is 0.
[[nodiscard]] AllReduceTime all_reduce_time(const Calibration& calibration, const CodecCost& codec,
                                            const AllReduceShape& shape);

// The fastest of several strategies. If several are equal, it is the first one.
struct AllReduceChoice {
  StrategyId strategy;
  AllReduceTime time;
};
[[nodiscard]] AllReduceChoice fastest(const Calibration& calibration, const CodecCost& codec, double elements,
                                      unsigned world, std::span<const StrategyId> strategies);

}  // namespace gradlane
