// figures.h - rates of one daemon and of its links, from two of its documents (pure functions)
#pragma once

#include <vector>

#include "tools/top/view.h"

namespace gradlane {

// Returns all fields but `address`, `waits` and `is_slow`.
[[nodiscard]] TopNode figures_of(const TopLooks& looks);
// Returns the links to all neighbours that are other nodes, sorted by the neighbours' numbers.
[[nodiscard]] std::vector<TopLink> links_of(const TopLooks& looks);

}  // namespace gradlane
