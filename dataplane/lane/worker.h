// worker.h - a poll-mode thread that runs lanes to completion
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "dataplane/lane/lane.h"
#include "dataplane/lane/port_queue.h"
#include "dataplane/poll/idle.h"

namespace gradlane {

// Owns nothing of what it polls. Everything connected to it is touched by its thread only while it runs.
class Worker {
 public:
  Worker(IdlePolicy policy, Nanos patience);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `fds`: readable when packets come to it; none: it must be looked at, again and again.
  void add(PortQueue& queue, std::span<const int> fds = {});
  void add(Lane& lane) { lanes_.push_back(&lane); }

  // A round is these three, one after the other. None of them reads a clock.
  //
  // What came: a burst of each queue. True if anything did.
  bool receive(Nanos now) noexcept;
  // What that leads to, and what is due; what goes. True if anything moved.
  bool poll(Nanos now) noexcept;
  // What to do until the next round.
  [[nodiscard]] Idle::Advice rest(bool moved, Nanos now) noexcept;

  // Rounds in a thread of its own, on that core if it is not negative, until stop().
  void start(const std::string& name, int core);
  void stop() noexcept;  // and waits for the end of the thread

  // Any thread: how long its rounds have taken that moved something, with whatever else its CPU did meanwhile.
  [[nodiscard]] Nanos busy() const noexcept { return busy_.load(std::memory_order_relaxed); }
  // And how many rounds of its thread have begun: one that is well does several in 100 ms.
  [[nodiscard]] uint64_t rounds() const noexcept { return rounds_.load(std::memory_order_relaxed); }

  // The trainers' end of its bell: they ring it where this worker sleeps.
  [[nodiscard]] int doorbell() const noexcept { return bells_.front().doorbell; }
  // Does the work of one that will not be started: what rings its bell wakes this one up.
  void stand_in_for(Worker& other);

 private:
  void watch(int fd, bool bell);
  void run(int core) noexcept;
  void sleep(Nanos most) noexcept;
  void sleep_deaf(Nanos most) noexcept;

  std::vector<PortQueue*> queues_;
  std::vector<Lane*> lanes_;
  Idle idle_;
  bool woken_ = false;  // by packets to any of its queues
  struct Bell {
    int bell = -1;
    int doorbell = -1;
  };
  std::vector<Bell> bells_;  // its own first
  int epoll_ = -1;
  std::atomic<bool> stop_{false};    // control thread writes, worker reads
  std::atomic<Nanos> busy_{0};       // worker writes, others read
  std::atomic<uint64_t> rounds_{0};  // the same
  std::thread thread_;
};

}  // namespace gradlane
