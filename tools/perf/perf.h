// perf.h - `gradlane perf`: time, bandwidth and results of collectives, as a trainer of a running ring
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// Options as the user wrote them. Empty lists and strings stand for the defaults.
struct PerfOptions {
  std::string begin;       // size of the smallest tensor, bytes
  std::string end;         // size of the largest tensor, bytes
  std::string factor;      // factor from one size to the next
  std::string iterations;  // timed iterations of each row
  std::string warmup;      // untimed iterations before them
  // numbers of operations to divide a tensor among; all of them are submitted at once
  std::vector<std::string> together;
  std::string concurrent;  // operations in flight at a time, each of a tensor of its own
  std::vector<std::string> ops;
  std::vector<std::string> strategies;
  std::vector<std::string> codecs;
  std::string reduction;
  std::string type;
  std::string data;  // one of data_names()
  std::string seed;
  std::string background;  // p99/p50 that other traffic must cause
  std::string interface;   // network interface for that traffic
  std::string format;      // table, json, osu, nccl
  bool percentiles = false;
  bool feedback = false;
  bool encoded = false;
  bool check = true;
  bool json = false;  // same as format "json"
};

// Runs one rank; all ranks run it with the same options. Rank 0 prints a row for each operation, size, strategy and
// codec to standard output. Returns the exit status: 1 if results were wrong or an operation failed. Standard error
// says which operation failed. Throws SetupError if options cannot be used or no daemon is found.
[[nodiscard]] int run_perf(const PerfOptions& options);

}  // namespace gradlane
