// worker.h - a poll-mode thread that runs lanes to completion
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/shared_socket.h"
#include "base/time.h"
#include "dataplane/lane/lane.h"
#include "dataplane/lane/port_queue.h"
#include "dataplane/poll/idle.h"

namespace gradlane {

// Polls port queues and lanes, but does not own them. While the worker runs, only its thread touches what is connected
// to it.
class Worker {
 public:
  Worker(IdlePolicy policy, Nanos patience);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `fds` become readable when packets come to the queue. Without any, the queue must be polled again and again.
  void add(PortQueue& queue, std::span<const int> fds = {});
  void add(Lane& lane) { lanes_.push_back(&lane); }

  // A round is these three functions, one after the other. None of them reads a clock.
  //
  // Receives a burst from each queue. Returns true if anything came.
  bool receive(Nanos now) noexcept;
  // Polls lanes and queues: handles what came and what is due, and sends. Returns true if anything moved.
  bool poll(Nanos now) noexcept;
  // Returns what to do until the next round.
  [[nodiscard]] Idle::Advice rest(bool moved, Nanos now) noexcept;

  // Runs rounds in a thread of its own until stop(), on this core if it is not negative.
  void start(const std::string& name, int core);
  void stop() noexcept;  // waits for the end of the thread

  // Returns the total time of rounds that moved something. It includes whatever else the CPU did during these rounds.
  // Any thread.
  [[nodiscard]] Nanos busy() const noexcept { return busy_.load(std::memory_order_relaxed); }
  // Returns whether a thread runs rounds. Control thread only.
  [[nodiscard]] bool running() const noexcept { return thread_.joinable(); }
  // Returns how many rounds of its thread have begun; all before them are over. A healthy worker does several in
  // 100 ms. Any thread.
  [[nodiscard]] uint64_t rounds() const noexcept { return rounds_.load(std::memory_order_acquire); }

  // Returns the trainers' end of the worker's bell. They ring it when the worker sleeps.
  [[nodiscard]] int doorbell() const noexcept { return bells_.front().doorbell.get(); }
  // Takes over the bells of a worker that will not be started: they wake this one up.
  void adopt_wakeups(Worker& other);

 private:
  void watch(SharedSocket& bell);
  void run(int core) noexcept;
  void sleep(Nanos most) noexcept;
  void sleep_uninterruptible(Nanos most) noexcept;

  std::vector<PortQueue*> queues_;
  std::vector<Lane*> lanes_;
  Idle idle_;
  bool woken_ = false;  // all queues have file descriptors, so that packets wake the worker
  struct Bell {
    SharedSocket bell;
    FileDescriptor doorbell;
  };
  FileDescriptor epoll_;
  std::vector<Bell> bells_;          // its own bell comes first
  std::atomic<bool> stop_{false};    // control thread writes, worker reads
  std::atomic<Nanos> busy_{0};       // worker writes, others read
  std::atomic<uint64_t> rounds_{0};  // worker writes, others read
  std::thread thread_;
};

}  // namespace gradlane
