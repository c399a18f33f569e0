// algorithms.h - the list of algorithms, and the choice of one for an operation
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "collectives/exchange/algorithm.h"

namespace gradlane {

inline constexpr size_t kAlgorithms = 4;

// One object of each algorithm, for one slot of the table of operations.
using AlgorithmSet = std::array<std::unique_ptr<Algorithm>, kAlgorithms>;

// Allocates one object of each algorithm. `it` and `parts` must outlive them.
[[nodiscard]] AlgorithmSet make_algorithms(OperationState& it, const EngineParts& parts);

// Returns the algorithm that the operation uses, one of the objects of its slot. Its kind and strategy must be known.
[[nodiscard]] Algorithm& algorithm_of(const OperationState& it) noexcept;

}  // namespace gradlane
