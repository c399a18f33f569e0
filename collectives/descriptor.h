// descriptor.h - an operation as its ranks compare it (pure functions)
#pragma once

#include <cstdint>

#include "collectives/operation.h"
#include "collectives/wire.h"

namespace gradlane {

// `codec` is for sums of fp32; all else travels as it is.
[[nodiscard]] Descriptor describe(const Operation& operation, const Codec& codec) noexcept;

// kMismatch with `rank`, which says `theirs`, and the first field that differs; none: they are one operation.
[[nodiscard]] Failure mismatch(const Descriptor& ours, const Descriptor& theirs, uint16_t rank) noexcept;

}  // namespace gradlane
