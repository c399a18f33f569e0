// signals.cc - SIGTERM, SIGINT and SIGHUP as a file descriptor (control thread only)
#include "dataplane/daemon/signals.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "dataplane/daemon/log_file.h"

namespace gradlane {

Signals::Signals(const std::string& log_file) : log_file_(log_file) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  // nohup makes a process ignore SIGHUP, and an ignored signal would never come.
  if (!log_file.empty()) signal(SIGHUP, SIG_DFL);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  fd_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw SetupError(std::string("signalfd: ") + std::strerror(errno));
}

const char* Signals::take() const {
  signalfd_siginfo info;
  while (read(fd_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGHUP) return info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM";
    if (log_file_.empty()) return "SIGHUP";
    try {
      open_log(log_file_);
      spdlog::info("SIGHUP: reopened log file {}", log_file_);
    } catch (const SetupError& error) {
      spdlog::warn("SIGHUP: {}: still writing to the old log file", error.what());
    }
  }
  return nullptr;
}

}  // namespace gradlane
