// own_daemon.cc - a gradlaned that runs for the time of a measurement (main thread only)
#include "tools/calibrate/own_daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tools/run/child.h"
#include "tools/run/ready.h"
#include "tools/run/settings.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReadyTime{30};
constexpr std::chrono::seconds kGrace{5};  // between SIGTERM and SIGKILL
constexpr std::chrono::milliseconds kReadyTick{20};

std::string make_folder() {
  std::string path = "/tmp/gradlane-calibrate-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    throw SetupError(fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  return path;
}

std::string last_line_of(const std::string& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Starts a program in a session of its own, so that Ctrl-C does not reach it. It outlives this process: unlike a child
// of start_child(), it must have time to remove its sockets.
pid_t start(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> command;
  for (const std::string& word : words) command.push_back(const_cast<char*>(word.c_str()));
  command.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   S_IRUSR | S_IWUSR);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, command[0], &files, &attributes, command.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw SetupError(fmt::format("cannot start {}: {}", words.front(), std::strerror(error)));
  return pid;
}

}  // namespace

OwnDaemon::OwnDaemon(const std::string& hosts, const std::string& rank)
    : folder_(make_folder()), socket_(folder_ + "/node.sock"), log_(folder_ + "/log") {
  try {
    // The strategies are those of the daemons that a training starts (placement.py of the Python package).
    std::vector<std::string> words = {find_daemon(),
                                      "--nodes",
                                      hosts,
                                      "--for",
                                      std::to_string(getpid()),
                                      "--tidy",
                                      "--set",
                                      "socket=" + socket_,
                                      "--set",
                                      "log_file=" + log_,
                                      "--set",
                                      "strategies=[ring, direct]"};
    if (!rank.empty()) words.insert(words.end(), {"--rank", rank});
    pid_ = start(words, log_);
    wait_until_ready();
  } catch (...) {
    stop();
    throw;
  }
}

OwnDaemon::~OwnDaemon() { stop(); }

bool OwnDaemon::ended() {
  if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

void OwnDaemon::wait_until_ready() {
  const auto end = Clock::now() + kReadyTime;
  while (!takes_trainers(socket_)) {
    if (ended()) throw SetupError(fmt::format("gradlaned {}: {}", ending_text(status_), last_line_of(log_)));
    if (Clock::now() > end) {
      throw SetupError(fmt::format("gradlaned is not ready after {} s: {}", kReadyTime.count(), last_line_of(log_)));
    }
    std::this_thread::sleep_for(kReadyTick);
  }
}

void OwnDaemon::stop() {
  if (!ended()) kill(pid_, SIGTERM);
  for (const auto end = Clock::now() + kGrace; !ended() && Clock::now() < end;) std::this_thread::sleep_for(kReadyTick);
  if (!ended()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace gradlane
