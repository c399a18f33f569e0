// compute_loop.h - computes on a thread of its own, as a backward does beside an exchange
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace gradlane {

// Rounds over some MB: multiplications and additions, bound by what a core computes and by memory, as layers are.
class ComputeLoop {
 public:
  ComputeLoop();
  ~ComputeLoop();
  ComputeLoop(const ComputeLoop&) = delete;
  ComputeLoop& operator=(const ComputeLoop&) = delete;

  // Done so far.
  [[nodiscard]] uint64_t rounds() const noexcept { return rounds_.load(std::memory_order_relaxed); }

 private:
  void run() noexcept;

  std::vector<float> weights_;
  std::vector<float> sums_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0};  // its thread writes, others read
  std::thread thread_;
};

}  // namespace gradlane
