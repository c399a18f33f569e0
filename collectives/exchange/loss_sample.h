// loss_sample.h - estimate of what rounding takes from this rank's contribution to a sum, by a sample (lane's thread)
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/exchange/blocks.h"
#include "collectives/operation.h"

namespace gradlane {

// The sample has at most kLossRuns runs of kLossRun neighbouring elements each, spread over the tensor.
inline constexpr size_t kLossRuns = 16;
inline constexpr size_t kLossRun = 128;

// Returns the loss in a sample of this rank's contribution. The sample is empty except for sums of fp32 through a lossy
// codec without residual: other operations copy exactly, and with error feedback the loss is only delayed. It is also
// empty for unbiased codecs, whose error is 0 on average, and for votes. Sparse codecs without feedback lose most of
// the norm, and the sample shows that. The codec of `op` must be ready to encode (Codec::finish_scan()). Nothing of the
// operation may have been sent yet. `blocks` is the division of its tensor. `seed` decides where the runs begin, so
// that over time each element is sampled.
[[nodiscard]] Loss sample_loss(const Operation& op, const Blocks& blocks, uint64_t seed) noexcept;

}  // namespace gradlane
