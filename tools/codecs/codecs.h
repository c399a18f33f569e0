// codecs.h - `gradlane codecs`: what codecs there are, what each promises, and what it does to data on this machine
#pragma once

#include <string>
#include <vector>

namespace gradlane {

// As the user wrote them. Empty lists and strings stand for the defaults.
struct CodecsOptions {
  std::vector<std::string> codecs;  // as codec_list() takes them
  std::vector<std::string> data;    // as make_samples() takes them
  bool measure = false;             // longer: for figures to be relied on
  bool no_measure = false;
  bool json = false;
  std::string write_docs;  // the page whose table is made anew
};

// Prints to standard output, or writes the page. Throws SetupError for options that cannot be used.
void run_codecs(const CodecsOptions& options);

}  // namespace gradlane
