// cleanup_guard.cc - a process that cleans up if `gradlane run` itself is killed (a process of its own)
#include "tools/run/cleanup_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.h"
#include "tools/run/namespaces.h"

namespace gradlane {
namespace {

constexpr pid_t kAllIsWell = 0;
constexpr int kPatience = 200;  // times 10 ms: limit until all killed processes are gone

[[noreturn]] void watch(int pipe, const std::string& folder, const std::vector<std::string>& spaces) {
  setpgid(0, 0);
  prctl(PR_SET_NAME, "run-warden");
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, fd);
  std::set<pid_t> groups;
  pid_t word = 0;
  // A word is far shorter than the bytes that a pipe passes on in one piece.
  while (read(pipe, &word, sizeof(word)) == sizeof(word)) {
    if (word == kAllIsWell) _exit(0);
    if (word > 0) groups.insert(word);
    if (word < 0) groups.erase(-word);
  }
  for (int i = 0; i < kPatience && !groups.empty(); ++i) {
    std::erase_if(groups, [](pid_t group) { return kill(-group, SIGKILL) != 0; });
    usleep(10000);
  }
  remove_spaces(spaces);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

CleanupGuard::CleanupGuard(const std::string& folder, const std::vector<std::string>& spaces) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw SetupError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    watch(ends[0], folder, spaces);
  }
  const int error = errno;
  close(ends[0]);
  pipe_ = ends[1];
  if (pid_ > 0) return;
  close(pipe_);
  throw SetupError(fmt::format("cannot start another process: {}", std::strerror(error)));
}

CleanupGuard::~CleanupGuard() {
  tell(kAllIsWell);
  close(pipe_);
  waitpid(pid_, nullptr, 0);
}

void CleanupGuard::tell(pid_t word) const noexcept { (void)!write(pipe_, &word, sizeof(word)); }

}  // namespace gradlane
