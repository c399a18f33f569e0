// ratio.h - `gradlane bench ratio`: how many bytes of packets a codec saves, exchange after exchange
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// As the user wrote them. Empty lists and strings stand for the defaults.
struct RatioOptions {
  std::vector<std::string> codecs;  // as codec_list() takes them
  std::vector<std::string> data;    // of data_names(), and recordings: FILE.npy
  std::string strategies;           // each codec goes by the first one that can carry it
  std::string nodes;
  std::string size;    // of the tensor on each rank
  std::string warmup;  // exchanges before those that count
  std::string exchanges;
  bool json = false;
  std::string write_docs;  // the page
};

// Exchanges over a simulated network (simnet.h), whose packets are counted. Prints to standard output, or writes the
// page. Returns the exit status: 1 if an operation failed. Throws SetupError for options that cannot be used.
[[nodiscard]] int run_ratio(const RatioOptions& options);

}  // namespace gradlane
