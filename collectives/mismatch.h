// mismatch.h - which field of an operation differs between two ranks (pure functions)
#pragma once

#include <cstdint>

#include "collectives/failure.h"
#include "collectives/wire.h"

namespace gradlane {

// kMismatch with `rank`, which says `theirs`, and the first field that differs; none: they are one operation.
[[nodiscard]] Failure mismatch(const Descriptor& ours, const Descriptor& theirs, uint16_t rank) noexcept;

}  // namespace gradlane
