// result_runs.cc - buffers of trainers for results as encoded runs (worker thread only)
#include "dataplane/trainer/result_runs.h"

#include <cstddef>
#include <cstring>

#include "client/gradlane.h"
#include "compress/encoded_tensor.h"
#include "config/config.h"

namespace gradlane {
namespace {

static_assert(GRADLANE_MAX_LANES == kMaxLanes && GL_RUNS_HEADER == kMaxLanes * sizeof(gradlane_lane_runs));
static_assert(GL_RUN_GROUP == kEncodedGroup && GL_RUN_GROUP_BYTES == RunArea::kGroupBytes);
static_assert(sizeof(gradlane_run) == sizeof(ResultRun) && offsetof(gradlane_run, at) == offsetof(ResultRun, at) &&
              offsetof(gradlane_run, floats) == offsetof(ResultRun, floats) &&
              offsetof(gradlane_run, bytes) == offsetof(ResultRun, bytes));

}  // namespace

RunArea run_area(uint8_t* buffer, const Share& share) noexcept {
  const size_t at = GL_RUNS_HEADER + share.first / kEncodedGroup * RunArea::kGroupBytes;
  const size_t groups = (share.count + kEncodedGroup - 1) / kEncodedGroup;
  return {.data = buffer + at, .bytes = groups * RunArea::kGroupBytes, .at = at};
}

void write_lane_runs(uint8_t* buffer, unsigned lane, const RunArea& area, const Completion& completion) noexcept {
  const gradlane_lane_runs found = {.at = area.at,
                                    .bytes = completion.run_bytes,
                                    .table = area.at + area.bytes - completion.runs * sizeof(gradlane_run),
                                    .count = completion.runs};
  std::memcpy(buffer + lane * sizeof found, &found, sizeof found);
}

}  // namespace gradlane
