// snapshot.h - figures of a worker that other threads may read
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gradlane {

// A copy of a worker's counters for other threads. The worker copies all of them every kInterval. So all values are
// from about the same time, and a reader never sees half of a value.
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
