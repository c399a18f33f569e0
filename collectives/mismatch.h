// mismatch.h - which field of an operation differs between two ranks (pure functions)
#pragma once

#include <cstdint>

#include "collectives/failure.h"
#include "collectives/wire.h"

namespace gradlane {

// Returns kMismatch with `rank`, which sent `theirs`, and the first field that differs. Returns no failure if both are
// the same operation.
[[nodiscard]] Failure mismatch(const Descriptor& ours, const Descriptor& theirs, uint16_t rank) noexcept;

}  // namespace gradlane
