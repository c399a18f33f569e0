// child.cc - child processes that end when this one does (main thread only)
#include "tools/run/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace gradlane {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw SetupError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  // The child's end blocks, because programs expect that.
  (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ends[0], ends[1]};
}

void close_pipe(const Pipe& pipe) {
  if (pipe.read >= 0) close(pipe.read);
  if (pipe.write >= 0) close(pipe.write);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs in the child between fork() and exec(). It allocates no memory.
[[noreturn]] void become(char* const* command, char* const* environment, int out, int err, pid_t parent,
                         const sigset_t& mask) {
  setpgid(0, 0);
  // If the parent died before prctl(), nothing would kill this process.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(127);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvpe(command[0], command, environment);
  const int error = errno;
  dprintf(STDERR_FILENO, "gradlane: cannot execute %s: %s\n", command[0], std::strerror(error));
  _exit(error == ENOENT ? 127 : 126);
}

}  // namespace

Child start_child(const ChildSpec& spec, const sigset_t& mask) {
  const std::vector<char*> command = pointers(spec.command);
  const std::vector<char*> environment = pointers(spec.environment);
  const Pipe out = make_pipe();
  Pipe err;
  try {
    if (!spec.one_pipe) err = make_pipe();
  } catch (...) {
    close_pipe(out);
    throw;
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(command.data(), environment.data(), out.write, spec.one_pipe ? out.write : err.write, parent, mask);
  }
  if (pid < 0) {
    const int error = errno;
    close_pipe(out);
    close_pipe(err);
    throw SetupError(fmt::format("cannot start {}: {}", spec.command.front(), std::strerror(error)));
  }
  // Parent and child both do this. So the group exists when start_child() returns, whichever of them runs first.
  setpgid(pid, pid);
  close(out.write);
  if (err.write >= 0) close(err.write);
  return {pid, out.read, err.read};
}

std::string ending_text(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exited with code {}", WEXITSTATUS(status));
  const char* const name = sigabbrev_np(WTERMSIG(status));
  return name != nullptr ? fmt::format("was killed by SIG{}", name)
                         : fmt::format("was killed by signal {}", WTERMSIG(status));
}

int exit_code_of(int status) noexcept { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> all_children() {
  std::ifstream file(fmt::format("/proc/self/task/{}/children", getpid()));
  std::vector<pid_t> children;
  for (pid_t pid = 0; file >> pid;) children.push_back(pid);
  return children;
}

void open_standard_descriptors() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
}

SignalQueue::SignalQueue(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, &before_);
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) throw SetupError(fmt::format("no signalfd: {}", std::strerror(errno)));
}

SignalQueue::~SignalQueue() {
  close(fd_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int SignalQueue::next() {
  signalfd_siginfo info = {};
  return read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace gradlane
