// codec_needs.cc - check whether all ranks have links to all others (set-up)
#include "collectives/strategy/codec_needs.h"

#include "collectives/strategy/topology.h"

namespace gradlane {

bool links_all(std::span<const StrategyId> allowed, unsigned world) {
  for (unsigned rank = 0; rank < world; ++rank) {
    if (linked_ranks(allowed, world, rank).size() + 1 != world) return false;
  }
  return true;
}

}  // namespace gradlane
