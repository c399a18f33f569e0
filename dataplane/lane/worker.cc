// worker.cc - the poll loop (worker thread), its start and stop (control thread)
#include "dataplane/lane/worker.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "dataplane/device/eal.h"
#include "dataplane/poll/poll_thread.h"

namespace gradlane {
namespace {

constexpr Nanos kLongestUninterruptible = 3 * kMillisecond;  // longest sleep that nothing can end
constexpr Nanos kTryAgain = 100 * kMicrosecond;              // sleep after a port has taken nothing

[[noreturn]] void fail_to_watch() {
  throw SetupError(std::string("cannot make the socket pair and the epoll instance of a worker: ") +
                   std::strerror(errno));
}

// Reads what a bell has. Returns false if a file has come; it stays unread.
bool drain(const SharedSocket& bell) noexcept {
  std::array<std::byte, 256> rings;
  return bell.receive(rings) >= 0 || errno != EPERM;
}

}  // namespace

Worker::Worker(IdlePolicy policy, Nanos patience) : idle_(policy, patience), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) fail_to_watch();
  bells_.push_back({SharedSocket(pair[0]), FileDescriptor(pair[1])});
  watch(bells_.back().bell);
}

void Worker::add(PortQueue& queue, std::span<const int> fds) {
  woken_ = !fds.empty() && (woken_ || queues_.empty());
  idle_.set_woken(woken_);
  queues_.push_back(&queue);
  for (const int fd : fds) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = -1}};  // no bell: the queue reads it
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) fail_to_watch();
  }
}

void Worker::watch(SharedSocket& bell) {
  if (!bell.add_to(epoll_.get(), {.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = bell.get()}})) fail_to_watch();
}

Worker::~Worker() { stop(); }

void Worker::adopt_wakeups(Worker& other) {
  for (Bell& it : other.bells_) {
    bells_.push_back(std::move(it));
    watch(bells_.back().bell);
  }
  other.bells_.clear();
}

// ---- A round

bool Worker::receive(Nanos now) noexcept {
  bool moved = false;
  for (PortQueue* const queue : queues_) moved |= queue->receive(now);
  return moved;
}

bool Worker::poll(Nanos now) noexcept {
  bool moved = false;
  for (Lane* const lane : lanes_) moved |= lane->poll(now);
  for (PortQueue* const queue : queues_) {
    queue->poll(now);
    queue->flush();
  }
  return moved;
}

Idle::Advice Worker::rest(bool moved, Nanos now) noexcept {
  bool in_flight = false;
  Nanos deadline = kNever;
  for (const Lane* const lane : lanes_) {
    in_flight |= lane->in_flight();
    if (!moved) deadline = std::min(deadline, lane->deadline());
  }
  for (const PortQueue* const queue : queues_) {
    in_flight |= queue->probing(now);
    if (!moved) deadline = std::min(deadline, queue->deadline());
    if (queue->waits()) deadline = std::min(deadline, now + kTryAgain);
  }
  return idle_.after(moved, in_flight, now, deadline);
}

// ---- Threads

void Worker::start(const std::string& name, int core) {
  check_core(core, "workers.cores");
  stop_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this, core] { run(core); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

void Worker::stop() noexcept {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_relaxed);
  gl_ring(doorbell());
  thread_.join();
}

void Worker::run(int core) noexcept {
  const PollThread thread(core);
  Nanos began = clock_now();
  bool moved = false;
  while (!stop_.load(std::memory_order_relaxed)) {
    rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    Nanos now = clock_now();
    if (moved) busy_.store(busy() + (now - began), std::memory_order_relaxed);
    began = now;
    moved = receive(now);
    // A burst takes time, and packets are stamped with the time when they are sent.
    if (moved) now = clock_now();
    moved |= poll(now);
    const Idle::Advice advice = rest(moved, now);
    if (advice.yield) sched_yield();
    if (advice.sleep != 0) sleep(advice.sleep);
  }
}

void Worker::sleep(Nanos most) noexcept {
  bool may = true;
  for (Lane* const lane : lanes_) may &= lane->fall_asleep();
  if (may) {
    const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(most, kSecond - 1))};
    epoll_event event;
    const int events = epoll_pwait2(epoll_.get(), &event, 1, &timeout, nullptr);
    // The kernel is older than 5.11, or the container does not allow the call: then nothing can wake the worker up.
    if (events < 0 && errno != EINTR) sleep_uninterruptible(most);
    if (events > 0 && event.data.fd >= 0) {
      const Bell& it = *std::ranges::find(bells_, event.data.fd, [](const Bell& each) { return each.bell.get(); });
      if (!drain(it.bell) || (event.events & (EPOLLRDHUP | EPOLLHUP)) != 0) {
        // A trainer has shut the bell down, or sent a file. It no longer works for any trainer, so sleeps become short.
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, event.data.fd, nullptr);
        idle_.set_woken(false);
      }
    }
  }
  for (Lane* const lane : lanes_) lane->wake_up();
}

void Worker::sleep_uninterruptible(Nanos most) noexcept {
  idle_.set_woken(false);
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(most, kLongestUninterruptible))};
  nanosleep(&timeout, nullptr);
}

}  // namespace gradlane
