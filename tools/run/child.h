// child.h - child processes that end when this one does, each in its own process group, with pipes for their output
// (main thread only)
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

namespace gradlane {

struct ChildSpec {
  std::vector<std::string> command;      // the first word is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value"
  bool one_pipe = false;                 // one pipe for standard output and standard error together
};

struct Child {
  pid_t pid = -1;  // number of the process and of its process group
  int out = -1;    // read end of its standard output, does not block
  int err = -1;    // read end of its standard error; -1 with one_pipe
};

// Starts a child. Its standard input is empty, its signal mask is `mask`. It is killed when this process dies, for any
// reason. If the command cannot be executed, the child exits with 127 or 126 and says why on its standard error. Throws
// SetupError if there are no resources for another process. All calls must come from the same thread of this process.
[[nodiscard]] Child start_child(const ChildSpec& spec, const sigset_t& mask);

// Returns a text for a wait status: "exited with code 3", "was killed by SIGKILL".
[[nodiscard]] std::string ending_text(int status);
// Returns the exit code, or 128 + signal if a signal ended the process.
[[nodiscard]] int exit_code_of(int status) noexcept;

// Makes this process the parent of all descendants whose own parent ends from now on, so that it can end these, too.
void adopt_orphans();
// Returns all children of this process that have not been waited for.
[[nodiscard]] std::vector<pid_t> all_children();

// Opens descriptors 0, 1 and 2 if they are closed, so that no pipe becomes one of them.
void open_standard_descriptors();

// Blocks signals, so that they can be read from a descriptor instead.
class SignalQueue {
 public:
  explicit SignalQueue(const std::vector<int>& signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] int next();  // next signal; 0: there is none
  // Returns the signals that were blocked before; children get this mask.
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return before_; }

 private:
  sigset_t before_ = {};
  int fd_ = -1;
};

}  // namespace gradlane
