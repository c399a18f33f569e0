// worker.h - the poll-mode thread of an accelerator, and the ports around its engine
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

// Everything is touched by its thread only while it runs, but what says otherwise.
class AcceleratorWorker final : private accel::FrameIo {
 public:
  struct Setup {
    accel::Accelerator::Setup engine{};
    InjectedFaults faults;  // in what comes from the wire
    IdlePolicy idle = IdlePolicy::kAdaptive;
    Nanos patience = Idle::kKernelPatience;
  };
  AcceleratorWorker(const Setup& setup, Port& host, Port& wire, PacketPool& pool);
  ~AcceleratorWorker();
  AcceleratorWorker(const AcceleratorWorker&) = delete;
  AcceleratorWorker& operator=(const AcceleratorWorker&) = delete;

  // One round: what came from either side, what that leads to, what goes. True if anything came.
  bool poll() noexcept;

  // Runs poll() in a thread of its own, on that core if it is not negative, until stop(). Throws SetupError.
  void start(int core);
  // Waits for the end of the thread, which sends what waits in bundles and queues before.
  void stop() noexcept;

  // Any thread: how many rounds of its thread have begun.
  [[nodiscard]] uint64_t rounds() const noexcept { return rounds_.load(std::memory_order_relaxed); }
  // The same, for what these publish.
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
