// formats.h - results in the format of OSU's micro-benchmarks and of nccl-tests, for programs that read those (no I/O)
#pragma once

#include <span>
#include <string>

#include "tools/perf/report.h"

namespace gradlane {

// Both formats have one table for each operation, strategy and codec, in which sizes ascend. A line before each table
// names its operation, strategy and codec.

// Returns rows as osu_allreduce -f -c prints them. If the settings ask for percentiles, returns them as with -z, which
// adds p50, p90 and p99.
[[nodiscard]] std::string osu_text(const PerfSettings& plan, std::span<const PerfRow> rows);

// Returns rows as all_reduce_perf prints them. Its columns for out-of-place operations are N/A, because gradlane works
// in place.
[[nodiscard]] std::string nccl_text(const PerfSettings& plan, unsigned world, std::span<const PerfRow> rows);

}  // namespace gradlane
