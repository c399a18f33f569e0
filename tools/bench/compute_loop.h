// compute_loop.h - a thread that computes all the time, as the backward pass does during an exchange
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace gradlane {

// Computes in rounds over some MB: multiplications and additions. Like a model's layers, it is limited by the core and
// by memory.
class ComputeLoop {
 public:
  ComputeLoop();
  ~ComputeLoop();
  ComputeLoop(const ComputeLoop&) = delete;
  ComputeLoop& operator=(const ComputeLoop&) = delete;

  // Returns the number of rounds done so far.
  [[nodiscard]] uint64_t rounds() const noexcept { return rounds_.load(std::memory_order_relaxed); }

 private:
  void run() noexcept;

  std::vector<float> weights_;
  std::vector<float> sums_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0};  // written by its thread, read by others
  std::thread thread_;
};

}  // namespace gradlane
