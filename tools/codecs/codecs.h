// codecs.h - `gradlane codecs`: a list of all codecs, their promises, and their effect on data on this machine
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// The options as the user wrote them. Empty lists and strings stand for the defaults.
struct CodecsOptions {
  std::vector<std::string> codecs;  // as codec_list() takes them
  std::vector<std::string> data;    // as make_samples() takes them
  bool measure = false;             // measures longer, for reliable figures
  bool no_measure = false;
  bool json = false;
  std::string write_docs;  // path of the page in which the table is replaced
};

// Prints to standard output, or writes the page. Throws SetupError for options that cannot be used.
void run_codecs(const CodecsOptions& options);

}  // namespace gradlane
