// report.h - output of `gradlane perf`: a table like that of nccl-tests, JSON, or the format of other tools
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tools/perf/settings.h"
#include "tools/perf/tail.h"

namespace gradlane {

// Measurements of contributions that were encoded before the operations. Times are medians over iterations of the
// slowest rank.
struct PerfEncoded {
  double bytes_per_float = 0;
  double encode_gbps = 0;  // GB/s: bytes of the floats / time to encode them
  double runs_us = 0;      // with the result as runs; 0: not measured
  double floats_us = 0;    // time of the same operation with floats
};

struct PerfRow {
  PerfOp op{};
  std::string strategy;
  std::string codec;
  size_t bytes = 0;
  size_t count = 0;
  unsigned together = 1;  // operations that the tensor is divided among
  // time of an operation: median over iterations of the slowest rank's time. If several run at a time: the slowest
  // rank's time of all iterations, divided by their number.
  double time_us = 0;
  double mean_us = 0;        // time of all iterations, divided by their number; mean over ranks
  double least_us = 0;       // time of all iterations, divided by their number, on the fastest rank
  double most_us = 0;        // time of all iterations, divided by their number, on the slowest rank
  Tail tail;                 // us; percentiles over iterations of the slowest rank's time
  double algbw = 0;          // GB/s: bytes / time
  double busbw = 0;          // GB/s: bytes that each link must carry without compression / time
  double wire_ratio = 0;     // bytes that must be sent uncompressed / bytes sent; 0 if nothing is sent
  double memcpy_gbps = 0;    // GB/s of memcpy of as many bytes, right before and after
  double vs_memcpy = 0;      // algbw / memcpy_gbps
  uint64_t wrong = 0;        // number of wrong elements, plus number of ranks whose result differs
  uint64_t burst_bytes = 0;  // bytes that each rank sends in a burst of other traffic; 0 if there is none
  // choice of the library, "fixed:10 by ring"; empty if it did not choose, or if the daemon does not report it
  std::string chosen{};
  std::optional<PerfEncoded> encoded{};
};

// These functions print to standard output. Rows of the table are printed as they are measured; everything else is
// printed at the end.
void print_perf_head(const PerfSettings& plan, unsigned world);
void print_perf_row(const PerfSettings& plan, const PerfRow& row);
// `skipped`: texts that name what is left out, and why. JSON (docs/measuring.md has the fields) is one line, so a
// program that prefixes lines does not break it.
void print_perf_end(const PerfSettings& plan, unsigned world, std::span<const PerfRow> rows,
                    std::span<const std::string> skipped);

}  // namespace gradlane
