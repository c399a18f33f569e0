// log_file.h - a file in place of standard error (control thread only)
#pragma once

#include <string>

namespace gradlane {

// Redirects standard error to the end of this file, including what DPDK writes. Creates the file if necessary. A
// further call with the same path opens the file that has this name now. The file must be a regular one or a character
// device, and no link. Does nothing if `path` is empty. Throws SetupError and then changes nothing.
void open_log(const std::string& path);

// Writes `text` to the standard error that the process had before open_log(), where the program that started the daemon
// reads why it ended. Does nothing without open_log().
void write_to_original_stderr(const std::string& text) noexcept;

}  // namespace gradlane
