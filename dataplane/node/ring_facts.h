// ring_facts.h - facts about a node's ring and its neighbours, from its ports and lanes (control thread only)
#pragma once

#include <string>

#include "base/time.h"
#include "dataplane/node/node.h"
#include "dataplane/watch/ring_watch.h"

namespace gradlane {

// Returns the facts that RingWatch needs. Figures of workers are up to 100 ms old.
[[nodiscard]] RingFacts ring_facts(const Node& node, Nanos now);

[[nodiscard]] NeighbourFacts::PortState state_of(const Port& port);

// Returns the MAC address of another host that has this node's address, or had it in the last 15 s; "": none.
[[nodiscard]] std::string rival_of(const NodePort& it, Nanos now);

}  // namespace gradlane
