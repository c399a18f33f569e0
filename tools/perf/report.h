// report.h - what `gradlane perf` prints: a table like that of nccl-tests, JSON, or what other tools print
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tools/perf/plan.h"
#include "tools/perf/tail.h"

namespace gradlane {

struct PerfRow {
  PerfOp op{};
  std::string strategy;
  std::string codec;
  size_t bytes = 0;
  size_t count = 0;
  unsigned together = 1;     // operations that it is divided among
  double time_us = 0;        // median over iterations of the slowest rank; several at a time: of all / their number
  double mean_us = 0;        // all / their number, in the mean over ranks,
  double least_us = 0;       //   of the fastest,
  double most_us = 0;        //   and of the slowest one
  Tail tail;                 // us, over iterations of the slowest rank
  double algbw = 0;          // GB/s: bytes / time
  double busbw = 0;          // GB/s: what each link must carry in that time if nothing is compressed
  double wire_ratio = 0;     // bytes that must be sent uncompressed / bytes sent; 0 where nothing is sent
  double memcpy_gbps = 0;    // of as many bytes, right before and after
  double vs_memcpy = 0;      // algbw of that
  uint64_t wrong = 0;        // elements, and ranks that differ
  uint64_t burst_bytes = 0;  // of other traffic, by each rank; 0: there is none
  std::string chosen{};      // "fixed:10 by ring": by the library, where that was to choose, if the daemon says it
};

// Rows of the table are printed as they are measured, all else at the end.
void print_perf_head(const PerfPlan& plan, unsigned world);
void print_perf_row(const PerfPlan& plan, const PerfRow& row);
// `skipped`: what is left out, and why. JSON (docs/perf.md has the fields) is one line, so that whatever prefixes lines
// does no harm.
void print_perf_end(const PerfPlan& plan, unsigned world, std::span<const PerfRow> rows,
                    std::span<const std::string> skipped);

}  // namespace gradlane
