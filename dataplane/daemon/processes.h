// processes.h - other processes, whose end is waited for (control thread only)
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// By pidfd: sockets that a process has do not tell, as its children by fork() have them too.
class Processes {
 public:
  // Those that are not there have ended already. Throws SetupError, which names it, if one cannot be watched: Linux
  // before 5.3, a number that is none of a process.
  explicit Processes(std::span<const pid_t> numbers);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] int fd() const noexcept {
    return epoll_.get();
  }  // readable when one has ended; -1: there never was one
  // True once: all have ended.
  [[nodiscard]] bool take() noexcept;

 private:
  FileDescriptor epoll_;
  std::vector<FileDescriptor> left_;
  bool told_ = true;
};

}  // namespace gradlane
