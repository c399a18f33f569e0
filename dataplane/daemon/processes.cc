// processes.cc - a watch for the end of other processes (control thread only)
#include "dataplane/daemon/processes.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace gradlane {

Processes::Processes(std::span<const pid_t> numbers) {
  if (numbers.empty()) return;
  told_ = false;
  epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) throw SetupError(fmt::format("cannot make an epoll instance: {}", std::strerror(errno)));
  for (const pid_t number : numbers) {
    // A pidfd is close-on-exec by default. glibc has a function for this call from 2.36 on.
    FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, number, 0U)));
    if (!process && errno == ESRCH) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = process.get();
    if (!process || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process.get(), &event) != 0) {
      throw SetupError(fmt::format("cannot watch process {}: {}{}", number, std::strerror(errno),
                                   errno == ENOSYS ? "; this needs Linux 5.3 or later" : ""));
    }
    left_.push_back(std::move(process));
  }
}

bool Processes::take() noexcept {
  epoll_event event{};
  while (!left_.empty() && epoll_wait(epoll_.get(), &event, 1, 0) == 1) {
    // Closing the pidfd also removes it from the epoll instance.
    std::erase_if(left_, [&](const FileDescriptor& it) { return it.get() == event.data.fd; });
  }
  const bool now = left_.empty() && !told_;
  told_ = told_ || now;
  return now;
}

}  // namespace gradlane
