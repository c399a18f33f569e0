// flow_model.h - exchanges that gradlane does not have, simulated as flows over a switch
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/link.h"

namespace gradlane {

// INCEPTIONN (MICRO 2018), Figure 1, has two exchanges for groups of G nodes besides rings of rings, which are
// `rings:G`:
//
//   aggregators:G       (a) the hierarchical worker-aggregator. Members send their gradients to the first node of their
//                       group. That node adds them and sends the sum to the root. The root adds these sums and sends
//                       the result to the first node of each group, which sends it to its members. With one group of
//                       all nodes, it is the flat worker-aggregator.
//   rings-aggregator:G  (b) rings under an aggregator. A group's gradients are added in a ring (reduce-scatter). Each
//                       member sends its share of the sum to the root. The root adds them, and sends shares back, which
//                       travel around the ring (all-gather).
//
// Two more can be compared with `direct` for small tensors. The number of nodes must be a power of two:
//
//   doubling            Each node sends the whole tensor to the node whose number differs in one bit, and adds what it
//                       gets. There is a step for each bit.
//   halving             The first step sends half of the tensor, and each later one half as much as the one before. The
//                       same steps in reverse order send the results back. That is twice the steps, and no more bytes
//                       than a ring. (Rabenseifner, 2004)
//
// The root is node 0, and aggregators are members too, as in `aggregator:0`. The model has bytes in full packets with
// the headers of gradlane's packets, and rate and delay of ports. It also has dependencies: a tensor, or a block in a
// ring, is forwarded when all of it has arrived. Adding, acknowledgements and losses are not in the model. A node sends
// to one node after the other. It sends no packet for which a queue of the switch would have no room.
struct FlowModel {
  enum class Kind : uint8_t { kAggregators, kRingsAggregator, kDoubling, kHalving };

  Kind kind = Kind::kAggregators;
  unsigned group = 1;

  [[nodiscard]] std::string name() const;
  // Returns why the exchange is not possible with that number of nodes. It is empty if it is possible.
  [[nodiscard]] std::string fault(unsigned nodes) const;
};

inline constexpr const char* kPlayUsage = "aggregators:G, rings-aggregator:G, doubling, halving";

// Returns the exchange with that name. Throws SetupError that lists the names.
[[nodiscard]] FlowModel find_flow_model(std::string_view name);

struct PlayResult {
  Nanos time = 0;
  LinkStats stats;
};

// Simulates an all-reduce of `bytes` bytes on each of `nodes` nodes, for which fault() must be empty. Packets have
// `mtu` bytes from gradlane's link header on.
[[nodiscard]] PlayResult run_flow_model(const FlowModel& play, unsigned nodes, size_t bytes, const LinkModel& model,
                                        size_t mtu);

}  // namespace gradlane
