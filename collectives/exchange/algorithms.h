// algorithms.h - the algorithms that there are, and which one an operation goes by
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "collectives/exchange/algorithm.h"

namespace gradlane {

inline constexpr size_t kAlgorithms = 4;

// One object of each, for one place of the table of operations.
using AlgorithmSet = std::array<std::unique_ptr<Algorithm>, kAlgorithms>;

// Allocates them. `it` and `parts` outlive them.
[[nodiscard]] AlgorithmSet make_algorithms(Running& it, const EngineParts& parts);

// Of those of the operation's place, the one that it goes by. Its kind and strategy are known.
[[nodiscard]] Algorithm& algorithm_of(const Running& it) noexcept;

}  // namespace gradlane
