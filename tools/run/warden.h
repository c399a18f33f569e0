// warden.h - a process that clears up if `gradlane run` itself is killed
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gradlane {

// It waits at a pipe. Should this process die without a word, it kills the process groups that it was told of and
// removes the folder and the network namespaces. (Children of this process die by themselves then, but not theirs.)
class RunWarden {
 public:
  // Signals that may come to this process's group must be blocked already, SIGPIPE ignored. Throws SetupError.
  RunWarden(const std::string& folder, const std::vector<std::string>& spaces);
  // All is well: the warden ends and touches nothing.
  ~RunWarden();
  RunWarden(const RunWarden&) = delete;
  RunWarden& operator=(const RunWarden&) = delete;

  void started(pid_t group) const noexcept { tell(group); }
  // Before its number can be used again.
  void ended(pid_t group) const noexcept { tell(-group); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  void tell(pid_t word) const noexcept;

  int pipe_ = -1;
  pid_t pid_ = -1;
};

}  // namespace gradlane
