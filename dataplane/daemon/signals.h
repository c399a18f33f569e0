// signals.h - SIGTERM, SIGINT and SIGHUP as a file descriptor (control thread only)
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace gradlane {

// Blocked in all threads that are started from here on; SIGPIPE is ignored. Throws SetupError.
class Signals {
 public:
  // `log_file`: what SIGHUP opens anew (dataplane/daemon/log_file.h); "": it is a signal like the others.
  explicit Signals(const std::string& log_file);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // The name of one that has come and ends the daemon, or null.
  [[nodiscard]] const char* take() const;

 private:
  const std::string log_file_;
  FileDescriptor fd_;
};

}  // namespace gradlane
