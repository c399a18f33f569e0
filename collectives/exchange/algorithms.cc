// algorithms.cc - the table of algorithms, one row each
#include "collectives/exchange/algorithms.h"

#include <iterator>

#include "collectives/exchange/delivery_algorithm.h"
#include "collectives/exchange/lone_algorithm.h"
#include "collectives/exchange/operation_state.h"
#include "collectives/exchange/owner_algorithm.h"
#include "collectives/exchange/ring_algorithm.h"

namespace gradlane {
namespace {

struct AlgorithmRow {
  bool (*serves)(const OperationState& it);
  std::unique_ptr<Algorithm> (*make)(OperationState& it, const EngineParts& parts);
};

template <class Made>
std::unique_ptr<Algorithm> make_one(OperationState& it, const EngineParts& parts) {
  return std::make_unique<Made>(it, parts);
}

// An operation uses the first row that serves it.
constexpr AlgorithmRow kRows[] = {
    {[](const OperationState& it) { return it.world == 1; }, make_one<LoneAlgorithm>},
    {[](const OperationState& it) { return delivers(it.operation.kind); }, make_one<DeliveryAlgorithm>},
    {[](const OperationState& it) { return it.strategy->has_owners(); }, make_one<OwnerAlgorithm>},
    {[](const OperationState&) { return true; }, make_one<RingAlgorithm>},
};
static_assert(std::size(kRows) == kAlgorithms);

}  // namespace

AlgorithmSet make_algorithms(OperationState& it, const EngineParts& parts) {
  AlgorithmSet made;
  for (size_t i = 0; i < kAlgorithms; ++i) made[i] = kRows[i].make(it, parts);
  return made;
}

Algorithm& algorithm_of(const OperationState& it) noexcept {
  size_t row = 0;
  while (!kRows[row].serves(it)) ++row;
  return *it.algorithms[row];
}

}  // namespace gradlane
