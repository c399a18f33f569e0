// perf.h - `gradlane perf`: time, bandwidth and results of collectives, as a trainer of a running ring
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// As the user wrote them. Empty lists and strings stand for the defaults.
struct PerfOptions {
  std::string begin;                  // the smallest tensor, bytes
  std::string end;                    // the largest
  std::string factor;                 // from one size to the next
  std::string iterations;             // timed, of each row
  std::string warmup;                 // untimed, before them
  std::vector<std::string> together;  // operations that a tensor is divided among, all submitted at once
  std::string concurrent;             // operations in flight at a time, each of a tensor of its own
  std::vector<std::string> ops;
  std::vector<std::string> strategies;
  std::vector<std::string> codecs;
  std::string reduction;
  std::string type;
  std::string data;  // of data_names()
  std::string seed;
  std::string background;  // p99/p50 that other traffic is to bring about
  std::string interface;   // which that goes by
  std::string format;      // table, json, osu, nccl
  bool percentiles = false;
  bool feedback = false;
  bool check = true;
  bool json = false;  // the same as that format
};

// Runs as one rank; all ranks run it with the same options. Rank 0 prints a row for each operation, size, strategy and
// codec to standard output. Returns the exit status: 1 if results were wrong or an operation failed, which standard
// error then says. Throws SetupError for options that cannot be used, and where there is no daemon to go to.
[[nodiscard]] int run_perf(const PerfOptions& options);

}  // namespace gradlane
