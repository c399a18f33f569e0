// signals.h - SIGTERM and SIGINT as a file descriptor (control thread only)
#pragma once

#include "dataplane/server_fd.h"

namespace gradlane {

// Blocked in all threads that are started from here on; SIGPIPE is ignored. Throws SetupError.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // The name of one that has come, or null.
  [[nodiscard]] const char* take() const noexcept;

 private:
  FileDescriptor fd_;
};

}  // namespace gradlane
