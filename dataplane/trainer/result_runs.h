// result_runs.h - buffers of trainers for results as encoded runs (worker thread only)
#pragma once

#include <cstdint>

#include "client/abi.h"
#include "collectives/operation.h"
#include "dataplane/trainer/share.h"

namespace gradlane {

// Returns a lane's part of a buffer of GL_FLAG_RUNS.
[[nodiscard]] RunArea run_area(uint8_t* buffer, const Share& share) noexcept;
// Writes the lane's gradlane_lane_runs to the start of the buffer.
void write_lane_runs(uint8_t* buffer, unsigned lane, const RunArea& area, const Completion& completion) noexcept;

}  // namespace gradlane
