// signals.h - SIGTERM, SIGINT and SIGHUP as a file descriptor (control thread only)
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace gradlane {

// Blocks the three signals in this thread and in all threads started later, and ignores SIGPIPE. Throws SetupError.
class Signals {
 public:
  // `log_file` is the file that SIGHUP opens again (dataplane/daemon/log_file.h). If it is "", SIGHUP ends the daemon
  // like the other signals.
  explicit Signals(const std::string& log_file);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Reads the signals that have arrived. Returns the name of one that ends the daemon, or null.
  [[nodiscard]] const char* take() const;

 private:
  const std::string log_file_;
  FileDescriptor fd_;
};

}  // namespace gradlane
