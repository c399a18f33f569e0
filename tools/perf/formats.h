// formats.h - results as OSU's micro-benchmarks and nccl-tests print them, for programs that read those (no I/O)
#pragma once

#include <span>
#include <string>

#include "tools/perf/report.h"

namespace gradlane {

// Both have one table for each operation, strategy and codec, in which sizes ascend; a line before it says which.

// As osu_allreduce -f -c; with percentiles as -z, which has p50, p90 and p99.
[[nodiscard]] std::string osu_text(const PerfPlan& plan, std::span<const PerfRow> rows);

// As all_reduce_perf. What is out of place there does not exist here: N/A.
[[nodiscard]] std::string nccl_text(const PerfPlan& plan, unsigned world, std::span<const PerfRow> rows);

}  // namespace gradlane
