// ring_facts.h - what a node's ports and lanes say about its ring and its neighbours (control thread only)
#pragma once

#include <string>

#include "base/time.h"
#include "dataplane/node/node.h"
#include "dataplane/watch/ring_watch.h"

namespace gradlane {

// What RingWatch looks at. Figures of workers are up to 100 ms old.
[[nodiscard]] RingFacts ring_facts(const Node& node, Nanos now);

[[nodiscard]] NeighbourFacts::PortState state_of(const Port& port);

// Who else has, or had a moment ago, this node's address; "": nobody.
[[nodiscard]] std::string rival_of(const NodePort& it, Nanos now);

}  // namespace gradlane
