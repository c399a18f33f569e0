// figures.h - rates of one daemon and of its links, from two of its documents (pure functions)
#pragma once

#include <vector>

#include "tools/top/view.h"

namespace gradlane {

// All but `waits`.
[[nodiscard]] TopNode figures_of(const TopLooks& looks);
// To each neighbour that is another node, by number.
[[nodiscard]] std::vector<TopLink> links_of(const TopLooks& looks);

}  // namespace gradlane
