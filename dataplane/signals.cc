// signals.cc - SIGTERM and SIGINT as a file descriptor (control thread only)
#include "dataplane/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "compress/error.h"

namespace gradlane {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  fd_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw SetupError(std::string("signalfd: ") + std::strerror(errno));
}

const char* Signals::take() const noexcept {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return nullptr;
  return info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM";
}

}  // namespace gradlane
