// child.h - processes that end when this one does, each in a process group of its own, with pipes for what they print
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace gradlane {

struct ChildSpec {
  std::vector<std::string> command;      // looked up in PATH
  std::vector<std::string> environment;  // "NAME=value"
  bool one_pipe = false;                 // for standard output and standard error together
};

struct Child {
  pid_t pid = -1;  // and process group
  int out = -1;    // read end of its standard output, not blocking
  int err = -1;    // the same of standard error; -1 with one_pipe
};

// Its standard input is empty, its signal mask `mask`. It is killed when this process dies, however that comes about.
// A command that cannot be executed ends with 127 or 126 and says why on its standard error. Throws SetupError if there
// are no resources for another process. One thread of this process, the same one, starts all children.
[[nodiscard]] Child start_child(const ChildSpec& spec, const sigset_t& mask);

// Of a wait status: "exited with code 3", "was killed by SIGKILL".
[[nodiscard]] std::string ending_text(int status);
// 128 + signal for those that a signal ended.
[[nodiscard]] int exit_code_of(int status) noexcept;

// From now on, descendants whose parent has ended are children of this process, so that none gets out of sight.
void adopt_orphans();
// All children of this process that have not been waited for.
[[nodiscard]] std::vector<pid_t> all_children();

// Descriptors 0, 1 and 2 are open after this, so that no pipe becomes one of them.
void open_standard_descriptors();

// Signals as events: they are blocked, and read from a descriptor.
class SignalQueue {
 public:
  explicit SignalQueue(const std::vector<int>& signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] int next();  // 0: none
  // What was blocked before: for children.
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return before_; }

 private:
  sigset_t before_ = {};
  int fd_ = -1;
};

}  // namespace gradlane
