// cost.h - the time of one all-reduce, from figures of hosts and links: by strategy, codec, ranks and partitions (pure)
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/plan/calibration.h"
#include "collectives/strategy/strategy_id.h"

namespace gradlane {

// What most of the time goes to.
enum class PlanLimit : uint8_t { kLatency, kLink, kCodec, kPackets, kMemory };
[[nodiscard]] const char* plan_limit_name(PlanLimit limit) noexcept;

struct AllReduceShape {
  double elements = 0;
  unsigned world = 1;
  StrategyId strategy;
  // K: into how many parts a block is cut, each of which goes on when it is there as a whole. 0: packets, as the
  // exchange does it, the limit of that; more parts than packets count as that many packets.
  double partitions = 0;
};

// Of the busiest rank. Shares are s that the resource is busy; they overlap, and do not add up to `seconds`.
struct AllReduceTime {
  double seconds = 0;
  double latency = 0;  // one packet's way through all hops, with nothing before it; and the start
  double link = 0;     // bytes with all headers / bandwidth
  double codec = 0;    // encoding, merging, decoding
  double packets = 0;  // port and exchange, packet by packet
  double memory = 0;   // reading and writing the tensor
  PlanLimit limit = PlanLimit::kLatency;
  double sent_bytes = 0;  // on the wire
  double sent_packets = 0;
};

// The alpha-beta-gamma model of collectives, with packets. Of each stage (an operation is one; of rings:G three, one
// after the other):
//
//   T = max( max(link, codec + packets, memory) + first,  path )
//
//   beta   link: width of sums and results (CodecCost::width) and headers, at the link's bandwidth.
//   gamma  codec + packets, which share a core: ns per element, and per packet, over lanes, which contend. Resources of
//          a rank work side by side, so that the busiest one counts.
//   alpha  path: what one piece of a block (a packet; 1/K of a block) takes through all hops: the link's delay, its
//   time
//          on the wire, once out of its host and once out of a switch behind those that others send to the same place,
//          and in the core. If blocks are long, hops hide behind each other, and only the first one is added; if they
//          are short, a rank waits for each.
//
// And once: ranks hear from each other that an operation has begun (a link's delay), and Calibration::start.
//
// Acknowledgements and losses are not modelled, nor trainers beside each other on a host. A world of one takes no time.
// Where the codec cannot go that way (CodecCost::owners), or G does not divide the world: all is 0 but `seconds`, which
// is infinite.
[[nodiscard]] AllReduceTime all_reduce_time(const Calibration& calibration, const CodecCost& codec,
                                            const AllReduceShape& shape);

// The fastest of several strategies; the first one of those that are equal.
struct AllReduceChoice {
  StrategyId strategy;
  AllReduceTime time;
};
[[nodiscard]] AllReduceChoice fastest(const Calibration& calibration, const CodecCost& codec, double elements,
                                      unsigned world, std::span<const StrategyId> strategies);

}  // namespace gradlane
