// loss_sample.h - what rounding takes away from this rank's contribution to a sum, by a sample of it (lane's thread)
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/exchange/blocks.h"
#include "collectives/operation.h"

namespace gradlane {

// Elements of an operation that are looked at, at most: so many runs of neighbours, spread over the tensor.
inline constexpr size_t kLossRuns = 16;
inline constexpr size_t kLossRun = 128;

// Empty but for sums of fp32 through a lossy codec: copies are exact, and with error feedback what is taken away is
// only late. Nor does it look at codecs that give another value what they take from one, on average, and at votes.
// Selections without feedback lose most of the norm, and it says so. `op` names its codec, which knows all that is to
// be known of the operation (Codec::settle), and nothing of it has been sent yet; `blocks` is how its tensor is
// divided. Where the runs begin depends on `seed`, so that in the end each element has its turn.
[[nodiscard]] Loss sample_loss(const Operation& op, const Blocks& blocks, uint64_t seed) noexcept;

}  // namespace gradlane
