// worker.h - the poll-mode thread of an accelerator, and the ports of its engine
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/time.h"
#include "config/config.h"
#include "dataplane/accelerator/engine/accelerator.h"
#include "dataplane/accelerator/queue.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/lane/fault_injector.h"
#include "dataplane/poll/idle.h"

namespace gradlane {

// While the thread runs, only the thread may use this object, except for functions that say otherwise.
class AcceleratorWorker final : private accel::FrameIo {
 public:
  struct Setup {
    accel::Accelerator::Setup engine{};
    InjectedFaults faults;  // faults injected into packets from the wire
    IdlePolicy idle = IdlePolicy::kAdaptive;
    Nanos patience = Idle::kKernelPatience;
  };
  AcceleratorWorker(const Setup& setup, Port& host, Port& wire, PacketPool& pool);
  ~AcceleratorWorker();
  AcceleratorWorker(const AcceleratorWorker&) = delete;
  AcceleratorWorker& operator=(const AcceleratorWorker&) = delete;

  // Does one round: receives from both sides, handles the frames and sends the results. Returns true if any frame came.
  bool poll() noexcept;

  // Runs poll() in a thread of its own until stop(). The thread runs on that core if it is not negative. Throws
  // SetupError.
  void start(int core);
  // Ends the thread and waits for its end. Before that, the thread sends packets that wait in bundles and queues.
  void stop() noexcept;

  // Any thread: returns how many rounds of the worker's thread have begun.
  [[nodiscard]] uint64_t rounds() const noexcept { return rounds_.load(std::memory_order_relaxed); }
  // Any thread: these return objects of which any thread may read the published figures.
  [[nodiscard]] const accel::Accelerator& engine() const noexcept { return *engine_; }
  [[nodiscard]] const AcceleratorQueue& host() const noexcept { return host_; }
  [[nodiscard]] const AcceleratorQueue& wire() const noexcept { return wire_; }

 private:
  [[nodiscard]] accel::Frame allocate() noexcept override;
  void release(const accel::Frame& frame) noexcept override;
  void to_wire(const accel::Frame& frame) noexcept override;
  void to_host(const accel::Frame& frame) noexcept override;

  [[nodiscard]] bool pass_from_host() noexcept;
  [[nodiscard]] bool pass_from_wire() noexcept;
  void inject(rte_mbuf* mbuf, Nanos now) noexcept;
  [[nodiscard]] bool handle_held(Nanos now) noexcept;
  void run(int core) noexcept;
  void rest(bool moved) noexcept;
  void finish() noexcept;

  PacketPool& pool_;
  AcceleratorQueue host_;
  AcceleratorQueue wire_;
  const std::unique_ptr<accel::Accelerator> engine_;
  std::unique_ptr<FaultInjector> injector_;
  Idle idle_;
  Nanos received_at_ = 0;
  Nanos settle_at_ = 0;
  std::atomic<bool> stop_{false};    // control thread writes, worker reads
  std::atomic<uint64_t> rounds_{0};  // worker writes, control thread reads
  std::thread thread_;
};

}  // namespace gradlane
