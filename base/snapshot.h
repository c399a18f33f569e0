// snapshot.h - figures of a worker that other threads may read
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// Counters belong to their worker. Every now and then it copies them here, where each is whole, and all are of about
// the same time.
template <size_t kSize>
class Snapshot {
 public:
  static constexpr Nanos kInterval = 100 * kMillisecond;

  [[nodiscard]] bool due(Nanos now) noexcept {
    if (now < due_) return false;
    due_ = now + kInterval;
    return true;
  }
  void set(size_t i, uint64_t value) noexcept { values_[i].store(value, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t operator[](size_t i) const noexcept { return values_[i].load(std::memory_order_relaxed); }

 private:
  Nanos due_ = 0;  // worker only
  std::array<std::atomic<uint64_t>, kSize> values_{};
};

}  // namespace gradlane
