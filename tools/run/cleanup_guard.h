// cleanup_guard.h - a process that cleans up if `gradlane run` itself is killed
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradlane {

// Starts the guard, a child process that reads from a pipe ("run-warden" in lists of processes). If this process dies
// without a message, the guard kills the process groups that started() has named. It then removes the folder and the
// network namespaces. Children of this process are killed by the kernel when it dies, but their own children are not.
class CleanupGuard {
 public:
  // Signals that may be sent to this process's group must be blocked already, and SIGPIPE ignored. Throws SetupError.
  CleanupGuard(const std::string& folder, const std::vector<std::string>& spaces);
  // Tells the guard that all is well. The guard then ends and removes nothing.
  ~CleanupGuard();
  CleanupGuard(const CleanupGuard&) = delete;
  CleanupGuard& operator=(const CleanupGuard&) = delete;

  void started(pid_t group) const noexcept { tell(group); }
  // Must be called before the group's number can be used again.
  void ended(pid_t group) const noexcept { tell(-group); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  void tell(pid_t word) const noexcept;

  int pipe_ = -1;
  pid_t pid_ = -1;
};

}  // namespace gradlane
