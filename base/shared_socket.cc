// shared_socket.cc - receiving without files, and the thread that closes sockets
#include "base/shared_socket.h"

#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace gradlane {
namespace {

// A signal ends the wait for a socket that lingers. It comes again and again, because the first may come too early.
constexpr int kSignal = SIGALRM;
constexpr long kLongestWait = 1'000'000;  // ns
constexpr int kMostReads = 1024;          // more than a socket's buffer has messages by default

class Alarm {
 public:
  Alarm() noexcept {
    struct sigaction ignore {};
    ignore.sa_handler = [](int) {};
    sigaction(kSignal, &ignore, nullptr);
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

// Reads what is left, because the other process would otherwise see an error in place of the last message to it.
void drain(int fd) noexcept {
  std::array<std::byte, 16384> rest;
  for (int i = 0; i < kMostReads && recv(fd, rest.data(), rest.size(), MSG_DONTWAIT) > 0; ++i) continue;
}

// Closes sockets in a thread of its own, which runs until the process ends.
class Closer {
 public:
  Closer() {
    try {
      std::thread thread([this] { run(); });
      pthread_setname_np(thread.native_handle(), "gradlane-close");
      thread.detach();
      runs_ = true;
    } catch (const std::system_error&) {  // no more threads are allowed
    }
  }

  // Returns false if there is no thread.
  bool take(int fd) {
    if (!runs_) return false;
    const std::lock_guard lock(mutex_);
    fds_.push_back(fd);
    come_.notify_one();
    return true;
  }

 private:
  [[noreturn]] void run() {
    Alarm alarm;
    for (;;) {
      const int fd = next();
      alarm.set(kLongestWait);
      drain(fd);
      close(fd);
      alarm.set(0);
    }
  }

  int next() {
    std::unique_lock lock(mutex_);
    come_.wait(lock, [this] { return !fds_.empty(); });
    const int fd = fds_.back();
    fds_.pop_back();
    return fd;
  }

  bool runs_ = false;
  std::mutex mutex_;
  std::condition_variable come_;
  std::vector<int> fds_;
};

}  // namespace

ssize_t receive_without_files(int socket, std::span<std::byte> bytes, int flags) noexcept {
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Files that belong to a message stay in the socket as long as it is only looked at.
  const ssize_t next = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | flags);
  if (next < 0) return next;
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EPERM;
    return -1;
  }
  // At most these bytes, because files may have come behind them in the meantime.
  return recv(socket, bytes.data(), std::min(bytes.size(), static_cast<size_t>(next)), MSG_DONTWAIT | flags);
}

bool SharedSocket::add_to(int epoll, epoll_event event) noexcept {
  if (epoll_ >= 0) epoll_ctl(std::exchange(epoll_, -1), EPOLL_CTL_DEL, fd_, nullptr);
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd_, &event) != 0) return false;
  epoll_ = epoll;
  return true;
}

void SharedSocket::reset() noexcept {
  const int fd = std::exchange(fd_, -1);
  const int epoll = std::exchange(epoll_, -1);
  if (fd < 0) return;
  static Closer& closer = *new Closer;  // never ends, as a close may be under way
  if (epoll >= 0) epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
  // The other process sees the end at once.
  shutdown(fd, SHUT_RDWR);
  if (!closer.take(fd)) close(fd);
}

void SharedSocket::swap(SharedSocket& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(epoll_, other.epoll_);
}

}  // namespace gradlane
