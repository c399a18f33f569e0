// log_file.h - a file in place of standard error (control thread only)
#pragma once

#include <string>

namespace gradlane {

// Standard error goes to the end of this file from now on, what DPDK writes there included; it is made if it is not
// there. Again with the same path: whatever has that name now. "": nothing happens. Throws SetupError, and then all is
// as it was.
void open_log(const std::string& path);

// Beside the log, to where standard error went before open_log(): who started the daemon reads there why it ended.
void tell_starter(const std::string& text) noexcept;

}  // namespace gradlane
