// processes.h - a watch for the end of other processes (control thread only)
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// Watches processes by pidfd. Their sockets would not show when they end, because children made by fork() have them
// too.
class Processes {
 public:
  // A process that does not exist counts as ended. Throws SetupError, which names the process, if one cannot be
  // watched: the kernel is older than Linux 5.3, or the number cannot be that of a process.
  explicit Processes(std::span<const pid_t> numbers);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] int fd() const noexcept {
    return epoll_.get();
  }  // readable when a process has ended; -1 if there was none to watch
  // Returns true once, when all processes have ended.
  [[nodiscard]] bool take() noexcept;

 private:
  FileDescriptor epoll_;
  std::vector<FileDescriptor> left_;
  bool told_ = true;
};

}  // namespace gradlane
