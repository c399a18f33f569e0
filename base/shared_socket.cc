// shared_socket.cc - receiving without files, and the thread that closes
#include "base/shared_socket.h"

#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace gradlane {
namespace {

// A signal ends the wait for a socket that lingers. It repeats, because one that comes before the wait would end
// nothing.
constexpr int kSignal = SIGALRM;
constexpr long kPeriod = 200'000;      // ns between signals
constexpr int kMostReads = 1024;       // more than a socket's buffer has messages by default
constexpr size_t kManyWaiting = 1024;  // files; the daemon may have several times as many open

class Alarm {
 public:
  Alarm() noexcept {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(kSignal, &action, nullptr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, kSignal);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kSignal;
    event._sigev_un._tid = gettid();  // libc has no other name for it
    exists_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }

  void set(long period) noexcept {
    const itimerspec times{.it_interval = {.tv_sec = 0, .tv_nsec = period},
                           .it_value = {.tv_sec = 0, .tv_nsec = period}};
    if (exists_) timer_settime(timer_, 0, &times, nullptr);
  }

 private:
  timer_t timer_{};
  bool exists_ = false;
};

// Reads what is left in a socket. Otherwise the other process, such as a client of the admin socket, would see an error
// in place of the last message to it.
void drain(int fd) noexcept {
  std::array<std::byte, 16384> rest;
  for (int i = 0; i < kMostReads && recv(fd, rest.data(), rest.size(), MSG_DONTWAIT) > 0; ++i) continue;
}

class Closer {
 public:
  Closer() {
    try {
      std::thread([this] { run(); }).detach();
    } catch (const std::system_error& error) {
      throw SetupError(std::string("cannot start a thread: ") + error.what());
    }
  }

  void take(int fd) {
    const std::lock_guard lock(mutex_);
    fds_.push_back(fd);
    ++waiting_;
    came_.notify_one();
  }
  [[nodiscard]] size_t waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }

 private:
  [[noreturn]] void run() {
    pthread_setname_np(pthread_self(), "gradlane-close");
    Alarm alarm;
    for (;;) {
      const int fd = next();
      alarm.set(kPeriod);
      drain(fd);
      close(fd);
      alarm.set(0);
      --waiting_;
    }
  }

  // Returns the file that came last, so that a flood delays files of the flood itself.
  int next() {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [this] { return !fds_.empty(); });
    const int fd = fds_.back();
    fds_.pop_back();
    return fd;
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<int> fds_;
  std::atomic<size_t> waiting_{0};
};

Closer& closer() {
  static Closer& it = *new Closer;  // never ends, as a close may be under way
  return it;
}

}  // namespace

SharedFile::SharedFile(int fd) : fd_(fd) {
  if (fd >= 0) (void)closer();
}

void SharedFile::reset() noexcept {
  if (fd_ >= 0) closer().take(std::exchange(fd_, -1));
}

bool SharedFile::too_many() noexcept { return closer().waiting() > kManyWaiting; }

SharedSocket::SharedSocket(int fd) : file_(fd) {
  // An out-of-band byte must be like any other. By default, recv() drops it, with its files, though MSG_PEEK does not
  // show it.
  const int on = 1;
  if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
}

bool SharedSocket::add_to(int epoll, epoll_event event) noexcept {
  if (epoll_ >= 0) epoll_ctl(std::exchange(epoll_, -1), EPOLL_CTL_DEL, get(), nullptr);
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, get(), &event) != 0) return false;
  epoll_ = epoll;
  return true;
}

ssize_t SharedSocket::receive(std::span<std::byte> bytes, int flags) const noexcept {
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Files that belong to a message stay in the socket as long as it is only looked at.
  const ssize_t next = recvmsg(get(), &message, MSG_PEEK | MSG_DONTWAIT | flags);
  if (next < 0) return next;
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EPERM;
    return -1;
  }
  // At most these bytes, because files may have come behind them in the meantime.
  return recv(get(), bytes.data(), std::min(bytes.size(), static_cast<size_t>(next)), MSG_DONTWAIT | flags);
}

void SharedSocket::reset() noexcept {
  const int epoll = std::exchange(epoll_, -1);
  if (!file_) return;
  if (epoll >= 0) epoll_ctl(epoll, EPOLL_CTL_DEL, get(), nullptr);
  shutdown(get(), SHUT_RDWR);
  file_.reset();
}

void SharedSocket::swap(SharedSocket& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(epoll_, other.epoll_);
}

}  // namespace gradlane
