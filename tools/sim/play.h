// play.h - exchanges that gradlane does not have, played as flows over a simulated switch
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/link.h"

namespace gradlane {

// What INCEPTIONN (MICRO 2018) draws in Figure 1 beside rings of rings, which `rings:G` is, for groups of G nodes:
//
// aggregators:G       (a) the hierarchical worker-aggregator. Members send their gradients to the first one of their
//                     group, which adds and sends the sum to the root, which adds and sends that to the first of each
//                     group, which sends it to its members. G = p is the flat one.
// rings-aggregator:G  (b) rings under an aggregator. A group's gradients are added in a ring (reduce-scatter), each
//                     member sends its share of the sum to the root, which adds, and sends shares back; they go round
//                     the ring (all-gather).
//
// And, to be held against `direct` for small tensors, of a power of two of nodes:
//
// doubling            All send the whole tensor to the node whose number differs in one bit, and add what comes: a step
//                     for each bit.
// halving             The same with half of what is left in each step, and all of it back in reverse order: twice the
//                     steps, and no more bytes than a ring. (Rabenseifner, 2004)
//
// The root is node 0, and aggregators are members too, as in `aggregator:0`. Modelled are bytes in full packets with
// the headers that gradlane's have, rate and delay of ports, and who must wait for whom: a tensor, or a block in a
// ring, goes on when it is there as a whole. Not modelled: adding, acknowledgements, losses. A node sends to one
// after the other, and nobody sends what a queue of the switch would have no room for.
struct Play {
  enum class Kind : uint8_t { kAggregators, kRingsAggregator, kDoubling, kHalving };

  Kind kind = Kind::kAggregators;
  unsigned group = 1;

  [[nodiscard]] std::string name() const;
  // Why not with so many nodes; empty: it is possible.
  [[nodiscard]] std::string fault(unsigned nodes) const;
};

inline constexpr const char* kPlayUsage = "aggregators:G, rings-aggregator:G, doubling, halving";

// Throws SetupError, saying what there is.
[[nodiscard]] Play find_play(std::string_view name);

struct PlayResult {
  Nanos time = 0;
  LinkStats stats;
};

// All-reduce of `bytes` bytes on each of so many nodes, without fault(); packets of `mtu` bytes from
// gradlane's link header on.
[[nodiscard]] PlayResult run_play(const Play& play, unsigned nodes, size_t bytes, const LinkModel& model, size_t mtu);

}  // namespace gradlane
