// ratio.h - `gradlane bench ratio`: the bytes of packets that a codec saves, over several exchanges
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// Options as the user wrote them. Empty lists and strings stand for the defaults.
struct RatioOptions {
  std::vector<std::string> codecs;  // in the form of codec_list()
  std::vector<std::string> data;    // of data_names(), and recordings: FILE.npy
  std::string strategies;           // each codec uses the first one that can carry it
  std::string nodes;
  std::string size;    // size of the tensor on each rank
  std::string warmup;  // exchanges before those that are counted
  std::string exchanges;
  bool json = false;
};

// Runs exchanges over a simulated network (simnet.h) and counts the bytes of their packets. Prints to standard output.
// Returns the exit status: 1 if an operation failed. Throws SetupError if options cannot be used.
[[nodiscard]] int run_ratio(const RatioOptions& options);

}  // namespace gradlane
